"""Finds declared columns in the header of a file, and says what is wrong with it."""

from collections import Counter
from collections.abc import Sequence

from app.core.errors import ColumnProblem
from grovekeeper_common import identifier_names, suspicions
from grovekeeper_forests import limits as forest_limits
from grovekeeper_forests.data.schema import composed


def problems_of_header(
    names: Sequence[str], declared: Sequence[str]
) -> list[ColumnProblem]:
    """The problems of a header: ``missing-column`` and ``duplicate-column`` by name;
    ``unknown-column`` by the columns' places, because a headerless file has a person's
    values where names should be.
    """
    counts = Counter(names)
    missing = [name for name in declared if name not in counts]
    problems = []
    for name, suspected in suspicions.of_missing_columns(missing, names).items():
        problems.append(ColumnProblem(name, "missing-column", 1, suspected=suspected))
    for name in declared:
        if counts[name] > 1:
            problems.append(ColumnProblem(name, "duplicate-column", counts[name]))
    unknown = {
        place: name for place, name in enumerate(names, start=1) if name not in declared
    }
    if unknown:
        shown = tuple(unknown)[: forest_limits.MAX_REPORTED_PROBLEMS]
        suspected = suspicions.of_unknown_columns(unknown, len(names))
        suspected = suspected or identifier_names.of_unknown_columns(unknown.values())
        problems.append(
            ColumnProblem(
                "", "unknown-column", len(unknown), positions=shown, suspected=suspected
            )
        )
    return problems


def declared_names(header: Sequence[str], declared: Sequence[str]) -> list[str]:
    """The names in a header, as the declaration writes those that it has.

    A header in another Unicode form than the declaration means the declared column that
    looks the same.
    """
    by_name = {composed(name): name for name in declared}
    # an exact name wins where two declared names look the same
    by_name.update(zip(declared, declared, strict=True))
    return [by_name.get(name) or by_name.get(composed(name), name) for name in header]
