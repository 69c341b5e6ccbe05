"""Private evaluation of released models: priced, released, and read."""
