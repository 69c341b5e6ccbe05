"""``python -m app.cli``: the same as ``grovekeeper``, for processes that start each other."""

from app.cli.main import main

main()
