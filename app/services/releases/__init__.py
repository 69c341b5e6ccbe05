"""Quotes, accepts, keeps and shows what jobs release: one way for all kinds, and a
module for each kind.
"""
