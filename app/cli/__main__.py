"""``python -m app.cli``: runs ``grovekeeper``, for processes that start each other."""

from app.cli.main import main

main()
