"""Prices, releases and reads profiles of datasets, which later jobs reuse at no privacy cost."""
