"""Verifies a delivery with standardwebhooks, and prints the event; a body that was
changed is refused.

python with_standardwebhooks.py < delivery.json
"""

import json
import sys

from standardwebhooks.webhooks import Webhook, WebhookVerificationError

delivery = json.load(sys.stdin)
webhook = Webhook(delivery["secret"])
print(json.dumps(webhook.verify(delivery["body"], delivery["headers"])))
try:
    webhook.verify(delivery["body"] + " ", delivery["headers"])
except WebhookVerificationError:
    pass  # as it must be
else:
    sys.exit("a changed body was accepted")
