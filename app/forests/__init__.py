"""Train and read differentially private forests. Depends on no database, no HTTP and no ledger."""
