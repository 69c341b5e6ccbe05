"""Transactions, column types and migrations for SQLite and PostgreSQL."""
