"""Measures accuracy, time and size; not part of the tests."""
