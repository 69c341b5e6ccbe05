"""Lists the kinds of jobs."""

from collections.abc import Mapping
from types import MappingProxyType

from app.services.evaluations.released_evaluation import EvaluationKind
from app.services.jobs.kind import JobKind
from app.services.profiles.released_profile import ProfileKind
from app.services.training.trained_model import TrainKind

KINDS: Mapping[str, JobKind] = MappingProxyType(
    {"train": TrainKind(), "profile": ProfileKind(), "evaluation": EvaluationKind()}
)
"""Every kind of job by the name that the job's row stores."""
