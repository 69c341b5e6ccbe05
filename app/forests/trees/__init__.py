"""Implements prices, growth, leaves and read-outs of trees that several algorithms share."""
