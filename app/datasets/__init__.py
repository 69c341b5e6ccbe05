"""Stores the declarations, uploads and private rows of datasets. Only one module reads
stored rows for a release.
"""
