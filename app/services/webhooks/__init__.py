"""Registers webhooks, and delivers events to them."""
