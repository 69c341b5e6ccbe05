"""``pte``: a small ensemble on private labels, and a larger ensemble on the labels that it predicts."""
