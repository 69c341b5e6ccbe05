"""T4 for whole jobs: given equal releases, the exact numbers of a job move with one row
by what was charged for it.

A job is recorded with real noise. Then it runs on a neighbour, and every draw answers
what it answered before. Each draw must have the scale of a leaf of the event, no more
candidates than that leaf states, and move by at most its sensitivity; the event of all
moves together must cost no more than the charge; order, number and scales of the draws,
the progress and every byte of the forest must be equal.
"""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from grovekeeper_forests import catalogue, remote
from grovekeeper_forests.bins import releases
from grovekeeper_forests.bins.noisy_counts import LARGEST_START, noise
from grovekeeper_forests.contract.plan import Plan
from grovekeeper_forests.data.coded_rows import CodedColumns, CodedRows, TrainingRows
from grovekeeper_forests.data.sanitiser import SanitisedColumns, SanitisedRows
from grovekeeper_forests.data.schema import TARGET_STEPS, Schema
from grovekeeper_forests.privacy import accountants
from grovekeeper_forests.privacy.events import (
    Adjacency,
    DiscreteLaplace,
    Event,
    RoundedGaussian,
    UnknownPrivacyEvent,
)
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest.draw import code_request, grow
from grovekeeper_forests.remote import CodedDistributedRows, ShardStates
from tests.privacy.noiseless import coded
from tests.privacy.recorder import Draw, Leaf, Recorder, check, leaves, scale_of
from tests.support.forest_fixtures import DivideRows
from tests.support.plans import request_for
from tests.support.schemas import number_schema, schema_of

SCHEMA = schema_of(
    {"name": "size", "type": "numeric", "lower": 0, "upper": 9, "missing": True},
    {"name": "age", "type": "numeric", "lower": 0, "upper": 9},
    {"name": "colour", "type": "categorical", "categories": ["red", "blue", "green"]},
    classes=["no", "maybe", "yes"],
)
N_ROWS = 240
MANY = 10**6
"""A public size at which private bins are cut on the fine grid."""
N_FORESTS = 40


def rows_of(n_rows: int = N_ROWS, seed: int = 0) -> SanitisedRows:
    """Rows whose labels follow from their values; the first one alone misses a value,
    the second is an outlier.
    """
    generator = np.random.default_rng(seed)
    size, age = (generator.uniform(0, 9, n_rows) for _ in range(2))
    labels = np.where(size < 4.5, 0, np.where(age < 1, 1, 2)).astype(np.int32)
    size[0], (size[1], age[1], labels[1]) = np.nan, (1, 5, 2)
    columns = SanitisedColumns(
        (size, age, generator.integers(0, 3, n_rows).astype(np.int32)), n_rows
    )
    return SanitisedRows(
        columns, labels, generator.integers(0, 256, (n_rows, 16), dtype=np.uint8)
    )


def without(rows: SanitisedRows, *gone: int) -> SanitisedRows:
    kept = ~np.isin(np.arange(len(rows.y)), gone)
    columns = tuple(column[kept] for column in rows.features.columns)
    return SanitisedRows(
        SanitisedColumns(columns, int(kept.sum())), rows.y[kept], rows.row_ids[kept]
    )


def relabelled(rows: SanitisedRows, *changed: int) -> SanitisedRows:
    labels = rows.y.copy()
    labels[list(changed)] = (labels[list(changed)] + 1) % 3
    return replace(rows, y=labels)


def with_outlier(rows: SanitisedRows) -> SanitisedRows:
    """Rows of one class and of small numbers, and the second row, which has another
    class and the largest numbers.
    """
    size, age, colour = (column.copy() for column in rows.features.columns)
    size, age = 0.7 * size, 0.7 * age
    size[1] = age[1] = 8.9
    columns = SanitisedColumns((size, age, colour), len(rows.y))
    return SanitisedRows(
        columns, 2 * (np.arange(len(rows.y)) == 1).astype(np.int32), rows.row_ids
    )


def recorded(
    plan: Plan,
    rows: SanitisedRows,
    second: SanitisedRows,
    *,
    is_coded: bool,
    replayed: list[Draw] | None = None,
    machines: "Machines | None" = None,
    schema: Schema | None = None,
) -> list[Draw]:
    declared = SCHEMA if schema is None else schema

    def form(values: SanitisedRows) -> TrainingRows:
        asked = None
        if is_coded or machines is not None:
            asked = code_request(plan, declared)
        if asked is not None and machines is not None:
            return machines.with_rows(coded(values, asked))
        return values if asked is None else coded(values, asked)

    recorder, progress = Recorder(replayed), list[int]()
    forest = grow(
        plan,
        declared,
        form(rows),
        recorder,  # type: ignore[arg-type]
        on_tree_done=lambda: progress.append(len(recorder.draws)),
        unlabelled=None if plan.unlabelled is None else form(second),
    )
    arrays = {
        name: (array.dtype, array.shape, array.tobytes())
        for name, array in forest.arrays.items()
    }
    return [*recorder.draws, Draw("what leaves", (progress, arrays), None, None)]


class Machines:
    """Rows on two machines in this process, and all bytes that were sent to the
    machines and back.
    """

    def __init__(self) -> None:
        self._shards, self.sent, self.n_received = (
            list[ShardStates](),
            list[bytes](),
            list[int](),
        )

    def with_rows(self, rows: CodedRows) -> CodedDistributedRows:
        """The rows, some blocks of them on each machine."""
        blocks = rows.features.blocks
        ends = np.cumsum([block.n_rows for block in blocks]).tolist()
        for n_first, first, end in ((0, 0, ends[0]), (1, ends[0], ends[-1])):
            taken = blocks[n_first : len(blocks) if n_first else 1]
            ids = None if rows.ids is None else rows.ids[first:end]
            part = CodedRows(
                CodedColumns(rows.features.public, list(taken)), rows.y[first:end], ids
            )
            self._shards.append(ShardStates(lambda part=part: part))
        return CodedDistributedRows(self)

    def total(self, brief: bytes, full: Callable[[], bytes]) -> np.ndarray:
        answers = [
            remote.dumps(shard.answer(remote.loads(brief))) for shard in self._shards
        ]
        self.sent.append(brief)
        self.n_received += map(len, answers)
        return sum(map(remote.loads, answers))


ACCOUNTS = [
    (slug, name)
    for slug in catalogue.BY_SLUG
    for name in catalogue.algorithm(slug).accountants
]
CASES = [
    *((slug, name, {}) for slug, name in ACCOUNTS),
    *(("rpf", name, {"splits": "node"}) for name in ("pure", "gdp")),
    *(("rpf", name, {"at_once": 1}) for name in ("pure", "gdp")),
    *(("mrf", name, {"selection": "two_stage"}) for name in ("pure", "zcdp", "gdp")),
    *(
        ("mrf", name, {"assignment": "sharded", "se": "hash"})
        for name in ("pure", "zcdp", "gdp")
    ),
    *(
        ("bms-rf", name, {"n_layers": 2, "selection": "two_stage"})
        for name in ("pure", "gdp")
    ),
    *(
        (
            "bms-rf",
            name,
            {"n_layers": 2, "layer_assignment": "sharded", "assignment": "sharded"},
        )
        for name in ("pure", "gdp")
    ),
    *(
        ("nbrt", name, {"start": "split", "calibration": "measured"})
        for name in ("zcdp", "gdp")
    ),
    # private bins on the fine grid
    ("rpf", "pure", {"size": MANY}),
    *(("nbrt", name, {"size": MANY}) for name in ("zcdp", "gdp")),
]


FORMS = [
    *((*case, False) for case in CASES),
    # the others read values alone
    *((*case, True) for case in CASES if not catalogue.algorithm(case[0]).reads_values),
]


@pytest.mark.covering("slug, parameters, is_coded", "accountant")
@pytest.mark.parametrize(("slug", "accountant", "parameters", "is_coded"), FORMS)
def test_a_row_moves_the_exact_numbers_of_a_job_by_what_was_charged(
    divide_rows: DivideRows,
    slug: str,
    accountant: str,
    parameters: dict[str, object],
    is_coded: bool,
) -> None:
    divide_rows(part_rows=100)
    plan, rows, second, shares = (
        planned(slug, accountant, **parameters),
        rows_of(),
        rows_of(seed=1),
        list[float](),
    )
    whole = recorded(plan, rows, second, is_coded=is_coded)
    neighbour = relabelled if plan.terms.adjacency is Adjacency.LABEL else without
    for row in (0, 1, 120, N_ROWS - 1):
        seen = recorded(
            plan, neighbour(rows, row), second, is_coded=is_coded, replayed=whole
        )
        shares.append(check(plan.event, whole, seen, accountant=accountant))
        if plan.unlabelled is not None:
            seen = recorded(
                plan, rows, without(second, row), is_coded=is_coded, replayed=whole
            )
            shares.append(
                check(plan.unlabelled.event, whole, seen, accountant=accountant)
            )
    assert max(shares) > 0


@pytest.mark.covering("slug, parameters", "accountant")
@pytest.mark.parametrize(("slug", "accountant", "parameters"), CASES)
def test_a_draw_on_twice_its_exact_numbers_costs_more_than_its_leaf(
    slug: str, accountant: str, parameters: dict[str, object]
) -> None:
    """Every leaf of the event is used up by a row that is the only one of its class and
    of its values: twice the utilities or sums would move by more than was charged. A
    few forests, because splits and shards are random.
    """
    plan, second = planned(slug, accountant, **parameters), rows_of(seed=1)
    rows, neighbour = (
        with_outlier(rows_of()),
        relabelled if plan.terms.adjacency is Adjacency.LABEL else without,
    )
    neighbours = [(plan.event, neighbour(rows, 1), second)]
    if plan.unlabelled is not None:
        neighbours.append((plan.unlabelled.event, rows, without(second, 1)))
    require_noticed(plan, (rows, second), neighbours, accountant=accountant)


def require_noticed(
    plan: Plan,
    rows: tuple[SanitisedRows, SanitisedRows],
    neighbours: list[tuple[Event, SanitisedRows, SanitisedRows]],
    *,
    accountant: str,
    schema: Schema | None = None,
) -> None:
    """Asserts that twice the exact numbers of every draw cost more than a leaf states,
    each in one of several forests.

    Args:
        neighbours: each with the event that pays for what differs.
    """
    unnoticed = {
        (type(leaf), scale_of(leaf))
        for event, *_ in neighbours
        for leaf in leaves(event)
    }
    drawn = set[tuple[type[Leaf] | str, object]]()
    for _ in range(N_FORESTS):
        whole = recorded(plan, *rows, is_coded=False, schema=schema)
        seen = [
            recorded(plan, *other, is_coded=False, replayed=whole, schema=schema)
            for _, *other in neighbours
        ]
        for other, (event, *_) in zip(seen, neighbours, strict=True):
            check(event, whole, other, accountant=accountant)
        for kind, scale in list(unnoticed):
            doubled = [
                [
                    draw._replace(exact=2 * draw.exact)
                    for draw in draws
                    if (draw.kind, draw.scale) == (kind, scale)
                ]
                for draws in (whole, *seen)
            ]
            for other, (event, *_) in zip(doubled[1:], neighbours, strict=True):
                try:
                    check(event, doubled[0], other, accountant=accountant)
                except AssertionError:
                    unnoticed.discard((kind, scale))
        drawn |= {(draw.kind, draw.scale) for draw in whole if draw.exact is not None}
        if not unnoticed & drawn:
            return
    assert not unnoticed & drawn


def planned(
    slug: str,
    accountant: str,
    *,
    adjacency: Adjacency | None = None,
    max_rows: int = 1,
    strength: int = 4,
    schema: Schema | None = None,
    size: int = N_ROWS,
    **parameters: object,
) -> Plan:
    delta = None if accountant == "pure" else Fraction(1, 10**6)
    shape, epsilon = (
        {"n_estimators": 3, "max_depth": 2, **parameters},
        Fraction(strength * max_rows),
    )
    terms = {
        "accountant": accountant,
        "delta": delta,
        "adjacency": adjacency,
        "max_rows": max_rows,
    }
    # None leaves the choice to the public rules
    shape = {name: value for name, value in shape.items() if value is not None}
    request = request_for(slug, shape, epsilon, size, **terms)  # type: ignore[arg-type]
    return forest_price.plan(request, SCHEMA if schema is None else schema)


FAMILIES = [
    ("rpf", "pure"), ("nbrt", "zcdp"), ("nbrt", "gdp"), ("mrf", "gdp"), ("rdt-ta", "pure"), ("bms-rf", "zcdp"),
    ("sspe-2", "pure"),
]  # fmt: skip
"""One algorithm of each way to grow, with its account."""

FAMILIES_OF_CODES = [
    case for case in FAMILIES if not catalogue.algorithm(case[0]).reads_values
]


def is_equal(one: list[Draw], other: list[Draw]) -> bool:
    return all(
        mine[:2] == theirs[:2]
        and (mine.exact is None or np.array_equal(mine.exact, theirs.exact))
        for mine, theirs in zip(one, other, strict=True)
    )


@pytest.mark.covering("slug", "accountant")
@pytest.mark.parametrize(("slug", "accountant"), ACCOUNTS)
def test_parts_and_threads_change_no_exact_number(
    divide_rows: DivideRows, slug: str, accountant: str
) -> None:
    """So what one row moves is the same, too; a part that were counted twice would be a
    difference.
    """
    plan, rows, second = planned(slug, accountant), rows_of(), rows_of(seed=1)
    whole = recorded(plan, rows, second, is_coded=False)
    for part_rows, n_threads in ((100, 1), (100, 2), (7, 2), (1, 3)):
        divide_rows(part_rows=part_rows, n_threads=n_threads)
        for is_coded in {False, not catalogue.algorithm(slug).reads_values}:
            assert is_equal(
                whole, recorded(plan, rows, second, is_coded=is_coded, replayed=whole)
            )


@pytest.mark.covering("slug", "accountant", "max_rows")
@pytest.mark.parametrize(("slug", "accountant"), ACCOUNTS)
@pytest.mark.parametrize("max_rows", [2, 5])
def test_a_unit_of_several_rows_moves_the_numbers_by_its_charge(
    slug: str, accountant: str, max_rows: int
) -> None:
    """All rows of the unit are alike, so that they meet in the same leaves and their
    moves add up.
    """
    plan, usual, unit = (
        planned(slug, accountant, max_rows=max_rows),
        rows_of(),
        range(10, 10 + max_rows),
    )
    for row in (0, 1, 120):
        places = np.arange(N_ROWS)
        places[10 : 10 + max_rows] = row
        columns = SanitisedColumns(
            tuple(column[places] for column in usual.features.columns), N_ROWS
        )
        rows = SanitisedRows(columns, usual.y[places], usual.row_ids)
        second = replace(rows, row_ids=rows_of(seed=1).row_ids)
        whole = recorded(plan, rows, second, is_coded=False)
        other = (
            relabelled(rows, *unit)
            if plan.terms.adjacency is Adjacency.LABEL
            else without(rows, *unit)
        )
        seen = recorded(plan, other, second, is_coded=False, replayed=whole)
        assert (
            check(plan.event, whole, seen, accountant=accountant, n_rows=max_rows) > 0
        )
        if plan.unlabelled is not None:
            of_second = recorded(
                plan, rows, without(second, *unit), is_coded=False, replayed=whole
            )
            assert (
                check(
                    plan.unlabelled.event,
                    whole,
                    of_second,
                    accountant=accountant,
                    n_rows=max_rows,
                )
                > 0
            )
    with pytest.raises(AssertionError):
        check(plan.event, whole, seen, accountant=accountant, n_rows=1)


@pytest.mark.parametrize(
    ("slug", "accountant"),
    [
        case
        for case in ACCOUNTS
        if catalogue.BY_SLUG[case[0]].adjacency is not Adjacency.LABEL
    ],
)
def test_a_changed_label_moves_the_numbers_by_the_charge_of_two_steps(
    slug: str, accountant: str
) -> None:
    """Where an account protects labels and the algorithm is proven for a row that is
    added or removed.
    """
    plan, rows, second = (
        planned(slug, accountant, adjacency=Adjacency.LABEL),
        rows_of(),
        rows_of(seed=1),
    )
    unit = accountants.by_name(accountant)
    for event in (
        [plan.event] if plan.unlabelled is None else [plan.event, plan.unlabelled.event]
    ):
        one_step = unit.loss(event, adjacency=Adjacency.ADD_REMOVE_ONE)
        assert unit.loss(event, adjacency=Adjacency.LABEL) == unit.group(2) * one_step
    whole = recorded(plan, rows, second, is_coded=False)
    for row in (0, 1, 120):
        seen = recorded(
            plan, relabelled(rows, row), second, is_coded=False, replayed=whole
        )
        assert check(plan.event, whole, seen, accountant=accountant, n_rows=2) > 0
        if plan.unlabelled is not None:
            seen = recorded(
                plan, rows, relabelled(second, row), is_coded=False, replayed=whole
            )
            assert (
                check(plan.unlabelled.event, whole, seen, accountant=accountant) == 0
            ), "its labels are not read"


@pytest.mark.parametrize(
    ("slug", "accountant"),
    [case for case in FAMILIES if not catalogue.algorithm(case[0]).reads_values],
)
def test_rows_on_other_machines_move_the_same_numbers_and_messages_follow_from_releases(
    slug: str, accountant: str
) -> None:
    """Given equal releases, every question to a machine is equal byte by byte, and
    every answer has the same length.
    """
    plan, rows, second, usual = (
        planned(slug, accountant),
        rows_of(),
        rows_of(seed=1),
        Machines(),
    )
    whole = recorded(plan, rows, second, is_coded=True)
    assert is_equal(
        whole,
        recorded(plan, rows, second, is_coded=True, replayed=whole, machines=usual),
    )
    for row in (0, 1, N_ROWS - 1):
        others = Machines()
        seen = recorded(
            plan,
            without(rows, row),
            second,
            is_coded=True,
            replayed=whole,
            machines=others,
        )
        check(plan.event, whole, seen, accountant=accountant)
        assert (others.sent, others.n_received) == (usual.sent, usual.n_received)


def equal_rows(n_rows: int) -> SanitisedRows:
    """Rows that are all the second row of ``rows_of``."""
    usual, places = rows_of(), np.ones(n_rows, dtype=np.intp)
    columns = tuple(column[places] for column in usual.features.columns)
    return SanitisedRows(
        SanitisedColumns(columns, n_rows), usual.y[places], usual.row_ids[places]
    )


@pytest.mark.parametrize(("slug", "accountant"), FAMILIES)
def test_many_equal_rows_add_as_many_times_what_one_row_adds(
    slug: str, accountant: str
) -> None:
    """70,000 rows in one cell, past 2^16 rows, and past 2^32 in sums of gradients,
    whose clipped length is 2^21.
    """
    strong = {"nbrt": 4_000, "rpf": 60}.get(slug, 4)
    plan, one, second = (
        planned(slug, accountant, strength=strong),
        equal_rows(1),
        rows_of(2, seed=1),
    )
    for is_coded in {False, not catalogue.algorithm(slug).reads_values}:
        whole = recorded(plan, one, second, is_coded=is_coded)
        many = recorded(
            plan, equal_rows(70_000), second, is_coded=is_coded, replayed=whole
        )
        sums = [
            (draw.exact, other.exact)
            for draw, other in zip(whole, many, strict=True)
            if draw.kind in {DiscreteLaplace, RoundedGaussian}
            and draw.exact is not None
            and other.exact is not None
        ]
        assert sums
        for of_one, of_many in sums:
            assert (of_many.astype(object) == 70_000 * of_one.astype(object)).all()
        if slug == "nbrt":
            assert max(int(abs(of_many).max()) for _, of_many in sums) > 2**36


def test_tables_of_the_most_rows_at_the_largest_scale_do_not_wrap() -> None:
    """2^31 rows in one cell of a table whose row adds 2^31: the sum has 62 bits, as
    bins/noisy_counts.py states.
    """
    event = noise(LARGEST_START, Adjacency.ADD_REMOVE_ONE, coordinates=2)
    recorder = Recorder()
    released = releases.release_counts(np.array([2**31, 0]), event, recorder)  # type: ignore[arg-type]
    assert recorder.draws[0].exact is not None
    assert recorder.draws[0].exact.tolist() == [2**62, 0]
    assert abs(int(released[0]) - 2**62) < 2**32
    with pytest.raises(UnknownPrivacyEvent):
        releases.release_counts(
            np.array([2**31, 0]),
            replace(event, l2_sensitivity_squared=Fraction(2**64)),
            recorder,
        )  # type: ignore[arg-type]


NUMBERS = number_schema(
    *(feature.to_json() for feature in SCHEMA.features), lower=-3, upper=60
)


def numbered(rows: SanitisedRows) -> SanitisedRows:
    """The rows with a number in place of their class."""
    size, age, _ = rows.features.columns
    codes = np.nan_to_num(size + age) * (TARGET_STEPS // 18)
    return replace(rows, y=codes.astype(np.int32))


def renumbered(rows: SanitisedRows, *changed: int) -> SanitisedRows:
    """The rows, of which some have the number at the other end of the range."""
    codes = rows.y.copy()
    for row in changed:
        codes[row] = 0 if codes[row] > TARGET_STEPS // 2 else TARGET_STEPS
    return replace(rows, y=codes)


OF_NUMBERS = [
    (slug, name)
    for slug, name in ACCOUNTS
    if catalogue.algorithm(slug).predicts_numbers
]


@pytest.mark.covering("slug, accountant", "depth", "is_coded", "adjacency, max_rows")
@pytest.mark.parametrize(("slug", "accountant"), OF_NUMBERS)
@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize("is_coded", [False, True])
@pytest.mark.parametrize(
    ("adjacency", "max_rows"),
    [(None, 1), (None, 3), (Adjacency.LABEL, 1)],
)
def test_a_row_whose_label_is_a_number_moves_a_job_by_what_was_charged(
    divide_rows: DivideRows,
    slug: str,
    accountant: str,
    depth: int,
    is_coded: bool,
    adjacency: Adjacency | None,
    max_rows: int,
) -> None:
    """A row, a unit of several rows, or a changed number, which costs two steps."""
    divide_rows(part_rows=100)
    shape = {"adjacency": adjacency, "max_rows": max_rows, "max_depth": depth}
    plan = planned(slug, accountant, schema=NUMBERS, **shape)  # type: ignore[arg-type]
    changes, n_rows = without, max_rows
    if adjacency is Adjacency.LABEL:
        changes, n_rows = renumbered, 2
    rows, form = numbered(rows_of()), {"is_coded": is_coded, "schema": NUMBERS}
    whole = recorded(plan, rows, rows, **form)  # type: ignore[arg-type]
    assert not is_equal(whole, recorded(plan, rows, rows, **form))  # type: ignore[arg-type]
    shares = []
    for row in (0, 1, 120, N_ROWS - max_rows):
        other = changes(rows, *range(row, row + max_rows))
        seen = recorded(plan, other, rows, replayed=whole, **form)  # type: ignore[arg-type]
        shares.append(
            check(plan.event, whole, seen, accountant=accountant, n_rows=n_rows)
        )
    assert max(shares) > 0.2


@pytest.mark.parametrize(("slug", "accountant"), [("nbrt", "gdp"), ("rpf", "pure")])
def test_numbers_on_other_machines_move_the_same_and_messages_follow_from_releases(
    slug: str, accountant: str
) -> None:
    plan = planned(slug, accountant, schema=NUMBERS)
    rows, usual = numbered(rows_of()), Machines()
    whole = recorded(plan, rows, rows, is_coded=True, schema=NUMBERS)
    there = recorded(
        plan, rows, rows, is_coded=True, replayed=whole, machines=usual, schema=NUMBERS
    )
    assert is_equal(whole, there)
    for row in (0, 1, N_ROWS - 1):
        others = Machines()
        seen = recorded(
            plan,
            without(rows, row),
            rows,
            is_coded=True,
            replayed=whole,
            machines=others,
            schema=NUMBERS,
        )
        check(plan.event, whole, seen, accountant=accountant)
        assert (others.sent, others.n_received) == (usual.sent, usual.n_received)


NUMBER_CASES = [
    *((slug, name, {}) for slug, name in OF_NUMBERS),
    ("nbrt", "gdp", {"max_depth": 0}),
    ("rpf", "gdp", {"splits": "node"}),
    ("rpf", "pure", {"at_once": 1}),
]


@pytest.mark.parametrize(("slug", "accountant", "parameters"), NUMBER_CASES)
def test_a_draw_on_twice_its_numbers_costs_more_where_the_label_is_a_number(
    slug: str, accountant: str, parameters: dict[str, object]
) -> None:
    """The row that uses up every leaf has the only number far from those of the others."""
    plan = planned(slug, accountant, schema=NUMBERS, **parameters)  # type: ignore[arg-type]
    rows = with_outlier(rows_of())
    codes = TARGET_STEPS // 4 + np.arange(N_ROWS, dtype=np.int32)
    codes[1] = TARGET_STEPS
    rows = replace(rows, y=codes)
    neighbours = [(plan.event, without(rows, 1), rows)]
    require_noticed(
        plan, (rows, rows), neighbours, accountant=accountant, schema=NUMBERS
    )


@pytest.mark.covering("slug", "accountant")
@pytest.mark.parametrize(("slug", "accountant"), OF_NUMBERS)
def test_parts_and_threads_change_no_exact_number_where_the_label_is_a_number(
    divide_rows: DivideRows, slug: str, accountant: str
) -> None:
    plan, rows = planned(slug, accountant, schema=NUMBERS), numbered(rows_of())
    whole = recorded(plan, rows, rows, is_coded=False, schema=NUMBERS)
    for part_rows, n_threads in ((100, 1), (7, 2), (1, 3)):
        divide_rows(part_rows=part_rows, n_threads=n_threads)
        for is_coded in (False, True):
            form = {"is_coded": is_coded, "schema": NUMBERS}
            seen = recorded(plan, rows, rows, replayed=whole, **form)  # type: ignore[arg-type]
            assert is_equal(whole, seen)


@pytest.mark.parametrize(("slug", "accountant"), [("nbrt", "gdp"), ("rpf", "pure")])
def test_many_equal_numbers_add_as_many_times_what_one_adds(
    slug: str, accountant: str
) -> None:
    """70,000 rows of one number: sums of residuals and of halves of rows."""
    strong = {"nbrt": 4_000, "rpf": 60}[slug]
    plan = planned(slug, accountant, strength=strong, schema=NUMBERS)
    one = replace(equal_rows(1), y=np.full(1, TARGET_STEPS, dtype=np.int32))
    rows = equal_rows(70_000)
    many = replace(rows, y=np.full(70_000, TARGET_STEPS, dtype=np.int32))
    whole = recorded(plan, one, one, is_coded=False, schema=NUMBERS)
    seen = recorded(plan, many, one, is_coded=False, replayed=whole, schema=NUMBERS)
    n_sums = 0
    for draw, other in zip(whole, seen, strict=True):
        if draw.kind not in {DiscreteLaplace, RoundedGaussian} or draw.exact is None:
            continue
        assert other.exact is not None
        assert draw.exact.any()
        assert (other.exact.astype(object) == 70_000 * draw.exact.astype(object)).all()
        n_sums += 1
    assert n_sums == plan.n_trees + (2 if slug == "nbrt" else 1)


@pytest.mark.parametrize("depth", [0, 2])
@pytest.mark.parametrize(("slug", "accountant"), OF_NUMBERS)
def test_no_rows_make_the_draws_of_any_rows_where_the_label_is_a_number(
    slug: str, accountant: str, depth: int
) -> None:
    """A mean that were drawn only where it has rows would tell whether there are any."""
    plan = planned(slug, accountant, schema=NUMBERS, max_depth=depth)
    rows = numbered(rows_of())
    none = without(rows, *range(N_ROWS))
    whole = recorded(plan, rows, rows, is_coded=False, schema=NUMBERS)
    seen = recorded(plan, none, rows, is_coded=False, replayed=whole, schema=NUMBERS)
    assert [draw[:2] for draw in seen] == [draw[:2] for draw in whole]
