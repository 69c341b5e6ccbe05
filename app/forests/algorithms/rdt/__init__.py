"""Implements ``rdt-mv``, ``rdt-ta``, ``rdt-pa``, ``rdt-jagannathan``, random decision trees: price and growth."""
