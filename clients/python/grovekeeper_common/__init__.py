"""What the service and its client have in common. Standard library alone."""
