"""Stores webhooks and the deliveries that wait for them, and sends deliveries."""
