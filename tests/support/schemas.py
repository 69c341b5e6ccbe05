"""Makes public schemas of made-up datasets."""

from collections.abc import Mapping, Sequence

from grovekeeper_forests.data.schema import Feature, Label, Schema


def schema_of(
    *features: Mapping[str, object], classes: Sequence[str], label: str = "kind"
) -> Schema:
    """A schema of features in JSON form and a label with some classes."""
    return Schema.from_json(
        {"features": list(features), "label": {"name": label, "classes": list(classes)}}
    )


def number_schema(
    *features: Mapping[str, object], lower: float, upper: float, label: str = "days"
) -> Schema:
    """A schema of features in JSON form and a label that is a number."""
    of_label = {"name": label, "type": "number", "lower": lower, "upper": upper}
    return Schema.from_json({"features": list(features), "label": of_label})


def sized(n_features: int, n_classes: int = 2) -> Schema:
    """A schema of so many columns of numbers and so many classes."""
    features = tuple(
        Feature(f"x{n}", "numeric", lower=0, upper=1) for n in range(n_features)
    )
    return Schema(features, Label("kind", tuple(f"c{n}" for n in range(n_classes))))
