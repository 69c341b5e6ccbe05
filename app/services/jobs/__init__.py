"""Jobs of every kind: the charge and run by a worker, the task of the child, display, cancellation and the sweep."""
