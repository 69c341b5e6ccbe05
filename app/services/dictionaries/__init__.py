"""Converts data dictionaries to drafts of declarations. Reads no rows and no database."""
