"""An evaluation: noisy counts of a released model's answers."""
