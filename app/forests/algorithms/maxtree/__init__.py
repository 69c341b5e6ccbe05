"""Implements ``maxtree``, greedy trees whose splits misclassify few rows: price and growth."""
