"""One mechanism per file: what it costs (before any row is read) and how it grows one tree."""
