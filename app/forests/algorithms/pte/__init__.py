"""Implements ``pte``, which trains an ensemble on rows that a private ensemble has labelled: price and growth."""
