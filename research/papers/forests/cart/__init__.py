"""Implements ``cart`` and ``rpart``, single trees by scikit-learn, without privacy."""
