"""``pte``: an ensemble for private labels that teaches a larger one."""
