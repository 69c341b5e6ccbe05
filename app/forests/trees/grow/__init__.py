"""Grows trees on PRIVATE rows, by steps that several algorithms share."""
