"""Jobs of every kind: charge, run, task of the child process, display, cancellation and sweep."""
