"""Authenticates keys, checks roles on datasets, and stores the answers to requests that
a client may repeat.
"""
