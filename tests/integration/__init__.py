"""A package, so that its servers end with its last test and not with the session."""
