"""Prices, draws and reads what jobs release: forests, profiles, evaluations and choices
among models.
"""
