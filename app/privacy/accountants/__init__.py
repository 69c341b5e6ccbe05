"""One module per unit of account."""
