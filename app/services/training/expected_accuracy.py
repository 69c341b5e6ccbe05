"""Compares a training request with public tables on which the benchmarks measured its algorithm."""

from app.forests import catalogue
from app.forests.expected_accuracy import Band, Comparison
from app.services.training.plan_training import PlannedTraining
from app.wire.training import ExpectedAccuracyOut, RecoveredBandOut, RecoveredOut

_STEPS_OF_A_LABEL = 2


def expected_accuracy(planned: PlannedTraining) -> ExpectedAccuracyOut | None:
    """The recovered shares on similar public tables; ``None`` where the size is not public or no table is similar.

    The size is the declared size or that of a released profile, never a count of rows.
    """
    part, *others = planned.parts
    rows = part.public_size if planned.profile is None else planned.profile.size
    if rows is None or others:
        return None
    is_halved = catalogue.algorithm(planned.plan.algorithm).adjacency is not part.dataset.adjacency
    comparison = Comparison(
        algorithm=planned.plan.algorithm,
        accountant=part.accountant,
        rows=rows,
        schema=part.dataset.schema,
        divisor=part.dataset.max_rows * (_STEPS_OF_A_LABEL if is_halved else 1),
    )
    band, curve = comparison.at(float(part.epsilon)), comparison.curve()
    if band is None and not curve:
        return None
    return ExpectedAccuracyOut(
        band=None if band is None else _shown(band),
        tables=[RecoveredOut(table=at.table, share=round(at.share, 3)) for at in ([] if band is None else band.tables)],
        curve=[_shown(at) for at in curve],
    )


def _shown(band: Band) -> RecoveredBandOut:
    return RecoveredBandOut(
        epsilon=f"{band.epsilon:g}",
        low=round(band.low, 3),
        middle=round(band.middle, 3),
        high=round(band.high, 3),
    )
