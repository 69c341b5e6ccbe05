"""Implements ``bms-rf``, layers of trees that learn from the votes of earlier layers:
price, growth and read-out.
"""
