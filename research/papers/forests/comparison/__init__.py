"""Implements ``comprf-c`` and ``comprf-i``, comparison-based random forests, without
privacy.
"""
