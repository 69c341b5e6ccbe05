"""Implements ``srt``, random trees whose leaves release one label each: price and growth."""
