"""Grows a planned forest on PRIVATE rows. Only the child process of a job imports this
module.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, TypeAlias, TypeVar

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.bms_rf import grow as bms_rf
from grovekeeper_forests.algorithms.literature import grow as literature
from grovekeeper_forests.algorithms.nbrt import grow as nbrt
from grovekeeper_forests.algorithms.rpf import grow as rpf
from grovekeeper_forests.bins import quantile_bins
from grovekeeper_forests.contract.algorithm import Algorithm, TwoDatasetAlgorithm
from grovekeeper_forests.contract.plan import Forest, Plan
from grovekeeper_forests.data.coded_rows import CodeRequest, TrainingRows
from grovekeeper_forests.data.encoding import Encoding
from grovekeeper_forests.data.sanitiser import SanitisedRows
from grovekeeper_forests.data.schema import Schema
from grovekeeper_forests.noise.randomness import PaidRandomness, Randomness
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.releases.drawing import Drawing
from grovekeeper_forests.releases.forest.price import read_plan
from grovekeeper_forests.releases.forest.read import dumps, only_answer_in_words
from grovekeeper_forests.trees.tree_growth import GrowTree, grow_trees
from grovekeeper_forests.trees.tree_parameters import HASH, SHARDED

Rows_contra = TypeVar("Rows_contra", contravariant=True)


class GrowForest(Protocol[Rows_contra]):
    """Growth of a whole forest, in which later trees may use the releases of earlier
    trees.
    """

    def __call__(
        self,
        plan: Plan,
        schema: Schema,
        rows: Rows_contra,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Grows and releases the forest; one call is one release. ``on_tree_done`` is
        called once per planned tree.
        """


class GrowFromBoth(Protocol):
    """Growth of a forest on two datasets about different people."""

    def __call__(
        self,
        plan: Plan,
        schema: Schema,
        rows: TrainingRows,
        unlabelled: TrainingRows,
        randomness: Randomness,
        *,
        on_tree_done: Callable[[], None],
    ) -> Forest:
        """Grows and releases the forest; one call is one release of each dataset."""


@dataclass(frozen=True)
class TreesOnCodes:
    """Growth of independent trees, which count the codes of the rows of one dataset."""

    grow: GrowTree


@dataclass(frozen=True)
class ForestOnCodes:
    """Growth of a whole forest, which counts the codes of the rows of one dataset."""

    grow: GrowForest[TrainingRows]


@dataclass(frozen=True)
class ForestOnValues:
    """Growth of a whole forest, which computes with the values of the rows of one
    dataset.
    """

    grow: GrowForest[SanitisedRows]


@dataclass(frozen=True)
class ForestOnBoth:
    """Growth of a whole forest, which counts the codes of the rows of two datasets."""

    grow: GrowFromBoth


Growth: TypeAlias = TreesOnCodes | ForestOnCodes | ForestOnValues | ForestOnBoth
"""A growth function by the rows that it takes. These are the types of its arguments, so
mypy refuses a function that reads values, or two datasets, in another class.
"""


def require_rows_as_stated(
    growth: Mapping[str, Growth], algorithms: Mapping[str, Algorithm]
) -> None:
    """Checks that each growth takes the rows that its algorithm states, which the
    service reads without growth.

    A job whose growth takes other rows than the service chose would break after its
    charge.

    Raises:
        ValueError: an algorithm has no growth, a growth has no algorithm, or their
            statements differ.
    """
    if growth.keys() != algorithms.keys():
        raise ValueError(
            "each algorithm needs one growth, and each growth one algorithm"
        )
    for slug, algorithm in algorithms.items():
        if isinstance(growth[slug], ForestOnValues) is not algorithm.reads_values:
            raise ValueError(f"reads_values of {slug} is not what its growth takes")
        if isinstance(growth[slug], ForestOnBoth) is not isinstance(
            algorithm, TwoDatasetAlgorithm
        ):
            raise ValueError(
                f"the number of datasets of {slug} is not what its growth takes"
            )


GROWTH: Mapping[str, Growth] = MappingProxyType(
    {
        "mrf": TreesOnCodes(literature.grow_multinomial_tree),
        "rdt-mv": TreesOnCodes(literature.grow_random_tree),
        "rdt-ta": TreesOnCodes(literature.grow_random_tree),
        "rdt-pa": TreesOnCodes(literature.grow_random_tree),
        "rdt-jagannathan": TreesOnCodes(literature.grow_random_tree),
        "srt": TreesOnCodes(literature.grow_labelled_random_tree),
        "maxtree": TreesOnCodes(literature.grow_maximal_vote_tree),
        "spe": TreesOnCodes(literature.grow_median_tree),
        "rpf": ForestOnCodes(rpf.grow_forest),
        "nbrt": ForestOnCodes(nbrt.grow_forest),
        "bms-rf": ForestOnValues(bms_rf.grow_forest),
        "sspe-2": ForestOnValues(literature.grow_label_trees),
        "pte": ForestOnValues(literature.grow_transductive_ensemble),
        "sspe-1": ForestOnBoth(literature.grow_from_both),
    }
)
"""Growth by slug of the algorithm."""

# The child of a job loads this module before the job is charged, so a wrong statement
# costs no budget.
require_rows_as_stated(GROWTH, catalogue.BY_SLUG)


def draw(job: Drawing) -> bytes:
    """Grows the priced forest of a job; see
    :data:`grovekeeper_forests.releases.drawing.Draw`.
    """
    schema = job.schema()
    forest = _forest(job, read_plan(job.work["plan"]), schema)
    expected_rows = job.metadata.get("expected_rows")
    # post-processing of the forest; model cards and quotes of evaluations show it
    judged = {"only_answer": only_answer_in_words(forest, schema, expected_rows)}
    # Not the task's schema: the database stores its 1e18 as an integer, which RFC 8785
    # refuses.
    return dumps(forest, {**job.metadata, **judged, "schema": schema.to_json()})


def _forest(job: Drawing, plan: Plan, schema: Schema) -> Forest:
    """Reads the rows and grows the forest. Only this function names the rows, so they
    leave memory before the artifact is made; workers of a cluster drop theirs later.
    """
    protects_labels = catalogue.algorithm(plan.algorithm).adjacency is Adjacency.LABEL
    rows = _rows(job, plan, keep_unlabelled=protects_labels)
    unlabelled = None
    if plan.unlabelled is not None:
        unlabelled = _rows(job, plan, part=1, keep_unlabelled=True)
    return grow(
        plan,
        schema,
        rows,
        job.randomness,
        on_tree_done=job.on_tree_done,
        unlabelled=unlabelled,
    )


def _rows(
    job: Drawing, plan: Plan, part: int = 0, *, keep_unlabelled: bool
) -> TrainingRows:
    request = code_request(plan, job.schema(part))
    if request is None:
        return job.values(part, keep_unlabelled=keep_unlabelled)
    return job.codes(request, part, keep_unlabelled=keep_unlabelled)


def code_request(plan: Plan, schema: Schema) -> CodeRequest | None:
    """The codes that a plan's growth reads of the features; ``None`` if it reads
    values.

    The bins are the plan's, or the public grid, among whose edges private bins are
    chosen.
    """
    if catalogue.algorithm(plan.algorithm).reads_values:
        return None
    with_ids = SHARDED in plan.parameters.values() or plan.parameters.get("se") == HASH
    if "n_bins" in plan.parameters and plan.profile is None:
        return CodeRequest(
            Encoding.of(schema, int(plan.parameters["n_bins"])), with_ids
        )
    return CodeRequest(quantile_bins.public_grid(schema, plan.grid), with_ids)


def grow(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
    unlabelled: TrainingRows | None = None,
) -> Forest:
    """Runs a plan once. One call is one release and costs the loss of ``plan.event``;
    every further call costs that again.

    Any number of rows is legal: an empty dataset, or a dataset with a single class,
    gives a forest of the same shape.

    Args:
        schema: public.
        rows: PRIVATE, sanitised, already bounded to the privacy unit's contribution.
            Every row has a known label. Only an algorithm that is stated under
            ``label`` also gets rows with an unknown label, coded −1.
        unlabelled: PRIVATE rows of the second dataset, for an algorithm that learns
            from two datasets; their labels are ignored.

    Returns:
        The released forest, in the shape that the plan fixes.

    Privacy:
        The loss of ``plan.event`` in the unit of the account (ε, ρ or μ²), under the
        algorithm's adjacency, by the algorithm's theorem. Where that adjacency is
        add/remove, the loss in ε under replace-one is twice
        as much. Encoding and assignment are record-wise (lemmas L5 and L6), trees
        compose by Theorem L. The number of calls of ``on_tree_done`` is the number of
        trees, whatever the rows are; the *time* of the calls is not covered.

    Source:
        docs/proofs/lemmas.md, and the proof page of the algorithm.
    """
    if plan.unlabelled is None:
        paying = [plan.event]
    else:
        paying = [plan.event, plan.unlabelled.event]
    paid = PaidRandomness(randomness, *paying)
    forest = _grown(
        plan, schema, rows, paid, on_tree_done=on_tree_done, unlabelled=unlabelled
    )
    paid.note_unused()
    return forest


def _grown(
    plan: Plan,
    schema: Schema,
    rows: TrainingRows,
    randomness: Randomness,
    *,
    on_tree_done: Callable[[], None],
    unlabelled: TrainingRows | None,
) -> Forest:
    """Grows the forest of a plan by the table of growth; see :func:`grow`."""
    match GROWTH[plan.algorithm]:
        case TreesOnCodes(grow_tree):
            return grow_trees(
                grow_tree,
                plan,
                schema=schema,
                rows=rows,
                randomness=randomness,
                on_tree_done=on_tree_done,
            )
        case ForestOnCodes(grow_forest):
            return grow_forest(
                plan, schema, rows, randomness, on_tree_done=on_tree_done
            )
        case ForestOnValues(grow_forest_on_values):
            if not isinstance(rows, SanitisedRows):
                raise ValueError("the values of the rows are missing")
            return grow_forest_on_values(
                plan, schema, rows, randomness, on_tree_done=on_tree_done
            )
        case ForestOnBoth(grow_from_both):
            if unlabelled is None:
                raise ValueError("the rows of the second dataset are missing")
            return grow_from_both(
                plan, schema, rows, unlabelled, randomness, on_tree_done=on_tree_done
            )
