"""Names the columns of a file of predictions."""

PREDICTED = "predicted"
"""The column of the predicted classes or numbers."""

share_column = "P({})".format
"""The column of the probabilities of a class."""
