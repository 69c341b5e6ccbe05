"""Implements ``mrf``, the multinomial random forest, whose splits are private random selections: price and growth."""
