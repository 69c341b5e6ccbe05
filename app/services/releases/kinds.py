"""Lists every kind of release."""

from collections.abc import Mapping
from types import MappingProxyType

from app.services.releases.contract import ReleaseKind
from app.services.releases.evaluations import EvaluationKind
from app.services.releases.profiles import ProfileKind
from app.services.releases.statistics import StatisticsKind
from app.services.releases.training import TrainKind
from grovekeeper_forests.releases.names import EVALUATION, MODEL, PROFILE, STATISTICS

KINDS: Mapping[str, ReleaseKind] = MappingProxyType(
    {
        MODEL: TrainKind(),
        PROFILE: ProfileKind(),
        EVALUATION: EvaluationKind(),
        STATISTICS: StatisticsKind(),
    }
)
"""Every kind by the name that the rows of its jobs and releases store; jobs of unknown
kinds are not claimed. How each is drawn: ``DRAW`` in
:mod:`app.services.drawing.perform`.
"""
