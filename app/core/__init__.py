"""What every package may use: errors, time, ids, exact amounts, limits, settings, logging."""
