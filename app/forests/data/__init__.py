"""The public schema, and the sanitising and encoding of rows by it."""
