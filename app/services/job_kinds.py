"""Every kind of job, by the name that its row carries."""

from collections.abc import Mapping
from types import MappingProxyType

from app.services.evaluation_kind import EvaluationKind
from app.services.job_kind import JobKind
from app.services.profile_kind import ProfileKind
from app.services.train_kind import TrainKind

BY_NAME: Mapping[str, JobKind] = MappingProxyType(
    {"train": TrainKind(), "profile": ProfileKind(), "evaluation": EvaluationKind()}
)
