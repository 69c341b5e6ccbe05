"""A forest: a model that a training job releases."""
