"""Plans, quotes, runs and registers the training of forests."""
