"""Provides fixtures and helpers for several kinds of test. The product imports none of
them.
"""
