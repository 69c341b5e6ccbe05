"""Stores releases: database rows, artifacts by digest, and a cache of artifacts."""
