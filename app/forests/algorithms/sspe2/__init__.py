"""Implements ``sspe-2``, median trees on public features that protect labels alone: price and growth."""
