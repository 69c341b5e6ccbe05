"""What a mechanism's released numbers mean: arrays of an artifact, bins, leaf values, probabilities."""
