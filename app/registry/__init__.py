"""Stores models, profiles and evaluations: database rows, artifacts by digest, and a
cache of artifacts.
"""
