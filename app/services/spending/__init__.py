"""Prices, quotes, admits and accepts requests that spend budget."""
