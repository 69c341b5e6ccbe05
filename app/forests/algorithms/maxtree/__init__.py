"""``maxtree``: greedy trees by the maximal vote."""
