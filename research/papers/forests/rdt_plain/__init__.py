"""Implements ``rdt-plain-mv``, ``rdt-plain-ta`` and ``rdt-plain-pa``, random decision
trees without privacy.
"""
