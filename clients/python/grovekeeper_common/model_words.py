"""Says what a model does not tell, in the same words everywhere."""

NO_IMPORTANCES = (
    "The leaves of this algorithm release no class counts, from which importances would be computed; "
    "its splits alone are counted."
)

A_TREE = "each end says what this tree alone would answer; the model adds up all trees"
