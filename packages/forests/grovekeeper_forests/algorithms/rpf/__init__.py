"""Implements ``rpf``, boosted trees on reweighted rows with permute-and-flip splits:
price, growth and read-out.
"""
