"""Profiles of datasets, which later jobs reuse at no privacy cost: request, release and display."""
