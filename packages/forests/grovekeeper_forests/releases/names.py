"""Names the kinds of releases, as the rows of jobs and releases store them."""

from types import MappingProxyType
from typing import Final

MODEL: Final = "train"  # the kind has the name of its job
PROFILE: Final = "profile"
EVALUATION: Final = "evaluation"
STATISTICS: Final = "statistics"

IN_WORDS: Final = MappingProxyType(
    {
        MODEL: "model",
        PROFILE: "profile",
        EVALUATION: "evaluation",
        STATISTICS: "set of statistics",
    }
)
"""What people call each kind of release."""
