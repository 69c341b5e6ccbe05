"""``python -m app.worker``: what ``grovekeeper worker`` and ``serve`` start."""

import os
import sys

from app.core.settings import Settings
from app.worker.main import run

if __name__ == "__main__":
    sys.exit(run(Settings.from_environment(os.environ)))
