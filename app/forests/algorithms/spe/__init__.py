"""Implements ``spe``, trees that split at private medians of hashed shards of the rows: price and growth."""
