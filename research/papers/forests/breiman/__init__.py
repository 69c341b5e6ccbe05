"""Implements ``breiman``, Breiman's random forest by scikit-learn, without privacy."""
