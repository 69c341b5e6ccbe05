"""Mathematics on events and budgets: no I/O, no clock, no randomness, no floats."""
