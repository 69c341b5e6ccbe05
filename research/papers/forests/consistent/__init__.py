"""Implements forests without privacy after the papers: ``mrf-plain``, its two ablations
and consistent forests.
"""
