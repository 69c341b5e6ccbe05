"""Trees from arrays, a public schema and a plan. Knows no database, no HTTP, no ledger."""
