"""The tests, by kind: see the folders."""
