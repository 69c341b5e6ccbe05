"""The ledger as its readers and owners use it: balances, history, caps, external charges, proofs and heads."""
