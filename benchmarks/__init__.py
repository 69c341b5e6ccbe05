"""Measures time, memory and size of the product; not part of the tests."""
