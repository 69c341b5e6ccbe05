"""The lease-table queue in the same database as the budget, so that both move in one transaction."""
