"""``nbrt``: noise-matched boosting of random trees."""
