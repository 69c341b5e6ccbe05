"""Fixtures and helpers of several kinds of test. The product imports none of them."""
