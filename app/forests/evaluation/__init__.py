"""Prices, releases and reads private evaluations of released models."""
