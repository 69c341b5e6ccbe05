"""Runs the verifier as ``python -m app.verifier FILE``."""

import sys

from app.verifier.main import main

sys.exit(main(sys.argv[1:]))
