"""Implements sizes, prices, growth and read-outs of trees that several algorithms
share.
"""
