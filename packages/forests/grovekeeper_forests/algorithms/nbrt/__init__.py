"""Implements ``nbrt``, gradient boosting on trees drawn at random: price, growth and
read-out.
"""
