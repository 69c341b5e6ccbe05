"""Declarations, uploads and the private rows behind them, with one reader."""
