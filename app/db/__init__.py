"""Transactions, dialects and migrations: SQLite on a laptop, PostgreSQL beyond it, one code path for both."""
