"""Manages transactions, column types and migrations on SQLite and PostgreSQL."""
