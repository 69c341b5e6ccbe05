"""Implements ``sspe-1``, median trees of an unlabelled dataset with leaves of a labelled dataset: price and growth."""
