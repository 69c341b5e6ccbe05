"""Who may call: keys, roles, grants on datasets, and the answers kept for repeated requests."""
