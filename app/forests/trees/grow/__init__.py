"""Growth that several algorithms share, on PRIVATE rows."""
