"""Places names beside the ends of curves, apart from each other."""

from collections.abc import Sequence


def spread(places: Sequence[float], gap: float) -> list[float]:
    """Places in the same order, at least ``gap`` apart and near where they were: each
    group of crowded places is centred at its mean.
    """
    order = sorted(
        range(len(places)),
        key=lambda index: places[index],
    )
    groups: list[list[int]] = []
    for index in order:
        groups.append([index])
        while len(groups) > 1 and _bottom(groups[-1], places, gap) < _bottom(
            groups[-2], places, gap
        ) + gap * len(groups[-2]):
            last = groups.pop()
            groups[-1] += last
    apart = [0.0] * len(places)
    for group in groups:
        for position, index in enumerate(group):
            apart[index] = _bottom(group, places, gap) + gap * position
    return apart


def _bottom(
    group: Sequence[int],
    places: Sequence[float],
    gap: float,
) -> float:
    """The lowest place of a group that is centred at its mean."""
    mean = sum(places[index] for index in group) / len(group)
    return mean - gap * (len(group) - 1) / 2
