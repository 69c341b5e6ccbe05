"""Runs ``grovekeeper`` as ``python -m app.cli``, for processes that start another
process of the installation.
"""

from app.cli.main import main

main()
