"""Says what a model does not tell, in the same words everywhere."""

NO_IMPORTANCES = (
    "The leaves of this algorithm release no class counts, from which importances would be computed; "
    "its splits alone are counted."
)
