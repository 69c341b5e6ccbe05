"""The public schema, and rows that are sanitised and encoded by it."""
