"""Releases the outputs of charged jobs, in child processes and on clusters."""
