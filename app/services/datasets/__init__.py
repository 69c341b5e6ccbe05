"""Datasets: declaration, upload, display, overlaps and erasure."""
