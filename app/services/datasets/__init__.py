"""Declares, uploads, shows and erases datasets, and finds rows that several uploads
share.
"""
