"""Calls a Grovekeeper service: trains private forests, asks for prices and balances, and predicts."""
