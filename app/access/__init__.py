"""Keys, roles, grants on datasets, and stored answers to repeated requests."""
