"""Names the kinds of releases, as the rows of jobs and releases store them."""

from typing import Final

MODEL: Final = "train"
PROFILE: Final = "profile"
EVALUATION: Final = "evaluation"


def in_words(kind: str) -> str:
    """What people call a release: a model, where the kind has the name of its job."""
    return "model" if kind == MODEL else kind
