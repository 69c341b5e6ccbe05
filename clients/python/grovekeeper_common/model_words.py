"""Says what a model does not tell, in the same words everywhere."""

NO_IMPORTANCES = (
    "Importances cannot be computed from what the leaves of this algorithm release: "
    "its splits alone are counted."
)

A_TREE = "each end says what this tree alone would answer; the model adds up all trees"
