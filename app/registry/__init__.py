"""Trained forests: their rows, their bytes by digest, and a cache of loaded ones. Works with every other table gone."""
