"""Price, release and read private evaluations of released models."""
