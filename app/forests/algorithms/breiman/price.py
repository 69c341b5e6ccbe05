"""Describes ``breiman``, Breiman's random forest by scikit-learn, and settles its parameters; it has no price."""

from __future__ import annotations

from app.forests.contract.about import without_privacy
from app.forests.contract.reference import Reference
from app.forests.trees import reference_parameters


class RandomForest(Reference):
    """Trees on bootstrap samples, the best of a random subset of columns at every node, Gini impurity."""

    slug = "breiman"
    title = "Random forest"
    source = "Breiman, Random Forests, Machine Learning 45 (2001); scikit-learn's RandomForestClassifier"
    about = without_privacy(
        "scikit-learn grows the trees. The smallest leaf has five rows and the forest votes, as in Bai et al. "
        "(2022), Multinomial random forest, section 5.1. Every value of an unordered category is a column."
    )
    read_outs = reference_parameters.READ_OUTS
    parameters = (
        reference_parameters.N_ESTIMATORS,
        reference_parameters.MIN_SAMPLES_LEAF,
        reference_parameters.MAX_FEATURES,
    )
    library = "sklearn"
