"""Profiles of datasets: priced, released once, and reused by later jobs at no cost."""
