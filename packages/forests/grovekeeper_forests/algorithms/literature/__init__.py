"""Implements the forests of published papers, repaired where a paper's guarantee does
not hold: prices and growth.
"""
