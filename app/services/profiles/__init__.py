"""Requests, releases and shows profiles of datasets, which later jobs reuse at no privacy cost."""
