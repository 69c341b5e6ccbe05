"""Whatever a file of rows holds, a job of any kind on it succeeds wherever it runs: a
failure would tell of a row.

A job that fails after its charge also loses the budget of its owner. So the rows here
have everything that an upload may hold. The shape of an output must be that of a file
without rows.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from app.core.dask_cluster import DaskCluster
from app.core.files import Directory
from app.core.processes import scrubbed_environment
from app.datasets import code_files, erasure, row_files, row_layout
from app.services.drawing import dask_fleet
from app.services.drawing.perform import perform
from app.services.jobs.task import JobTask, PartRows, input_path
from grovekeeper_forests import catalogue
from grovekeeper_forests.bins.quantile_bins import ReusedProfile
from grovekeeper_forests.contract.algorithm import PublicFacts
from grovekeeper_forests.privacy.calibration import Terms
from grovekeeper_forests.privacy.events import Adjacency
from grovekeeper_forests.privacy.partitions import (
    ColumnPartition,
    HashPartition,
    Partitions,
)
from grovekeeper_forests.privacy.scope import WHOLE, Scope
from grovekeeper_forests.releases.choice.price import plan_best
from grovekeeper_forests.releases.contract import public_facts
from grovekeeper_forests.releases.evaluation import metrics
from grovekeeper_forests.releases.evaluation.price import EvaluationPlan, plan_tables
from grovekeeper_forests.releases.evaluation.read import Evaluation
from grovekeeper_forests.releases.forest import price as forest_price
from grovekeeper_forests.releases.forest import read as released_forest
from grovekeeper_forests.releases.forest.price import PlanRequest
from grovekeeper_forests.releases.profile import price as profile_price
from grovekeeper_forests.releases.profile.read import Profile
from grovekeeper_forests.releases.statistics import price as statistics_price
from grovekeeper_forests.releases.statistics.read import Statistics
from tests.privacy.test_hostile_data import PLANS
from tests.support import forked_program
from tests.support.plans import request_for
from tests.support.schemas import schema_of
from tests.support.uploads import (
    DATA_KEY,
    Ingestion,
    path_of,
    store_table,
    stored_table,
)
from tests.support.workers_here import WorkersHere, wait_for, workers_here

ROOT = Path(__file__).parents[2]
SCHEMA = schema_of(
    {
        "name": "income",
        "type": "numeric",
        "lower": -1e300,
        "upper": 1e300,
        "missing": True,
    },
    {"name": "age", "type": "integer", "lower": 0, "upper": 9},
    {
        "name": "city",
        "type": "categorical",
        "categories": [f"c{i}" for i in range(40)],
        "missing": True,
    },
    {"name": "fixed", "type": "numeric", "lower": 2.5, "upper": 2.5},
    {"name": "rank", "type": "categorical", "categories": ["one"], "ordered": True},
    classes=["a", "b"],
)
PARTITIONS = Partitions(
    (
        HashPartition("shard", 256),
        ColumnPartition("land", "land", False, ("EU", "US"), has_missing=True),
    )
)
HEADER = "income,age,city,fixed,rank,land,kind\n"
ODD = [
    *("1,3,c7,2.5,one,EU,a\n" * 9, "-1e300,0,c254,2.5,one,US,b\n" * 5),  # duplicates
    *(
        "1,3,c7,2.5,one,EU,\n",
        "2,4,c0,2.5,one,US,perhaps\n",
        ",0,,2.5,one,,\n",
        ",0,,2.5,one,,b\n",
    ),  # no label, unknown, no cell
    *(
        "inf,1e30,zzz,-9,two,XX,a\n",
        "-inf,-7,c1,1e308,two,,b\n",
        "nan,3.0,NA,2.5,one,eu,b\n",
        "1e-320,9,c2,2.5,one,EU,a\n",
    ),
    *("-0,5,é,2.5,one,EU,A\n", "1e999,4,c9,inf,one,EU,b\n"),
]
CELLS_WITHOUT_ROWS = Scope({"shard": tuple(range(250, 256)), "land": ("OTHER",)})


@dataclass(frozen=True)
class Odd:
    """Uploads, and what happens to them before the job.

    Attributes:
        bodies: the lines of each upload.
        scope: of the job.
        erases: erases rows, or an upload, after the codes of the rows were stored.
    """

    bodies: Sequence[Sequence[str]]
    scope: Scope
    erases: Callable[[Directory], None] = lambda _store: None


def erase_upload(store: Directory) -> None:
    form = row_layout.arrow_schema(SCHEMA, PARTITIONS)
    erasure.erase_upload(store, "ds_a", "ep_0", form=form, key=DATA_KEY)


def erase_units(store: Directory) -> None:
    """Erases the first seven rows, so that a row group has none, and the last row."""
    file = row_files.sealed_rows(store, "ds_a", "ep_0", key=DATA_KEY)
    ids = stored_table(file).column(row_layout.ROW_ID_COLUMN).to_pylist()
    for row_id in (*ids[:7], ids[-1]):
        erasure.erase_rows(store, "ds_a", ["ep_0"], key=DATA_KEY, row_id=row_id)


FILES = {
    "everything at once": Odd([ODD, [], ODD], WHOLE, erase_units),
    "no row": Odd([[]], WHOLE),
    "one row": Odd([["1,3,c7,2.5,one,EU,a\n"]], WHOLE),
    "no label": Odd([["1,3,c7,2.5,one,EU,\n"] * 8], WHOLE),
    "unknown labels alone": Odd([["1,3,c7,2.5,one,EU,perhaps\n"] * 8], WHOLE),
    "one class": Odd([[f"{n},{n % 9},c{n},2.5,one,EU,b\n" for n in range(30)]], WHOLE),
    "one row thirty times": Odd([["1,3,c7,2.5,one,EU,a\n"] * 30], WHOLE),
    "columns all missing": Odd([[",0,,2.5,one,,a\n", ",0,,2.5,one,,b\n"] * 8], WHOLE),
    "cells out of bounds alone": Odd(
        [["1e999,1e30,zzz,7,two,XX,a\n", "-inf,-1e9,é,-7,two,,b\n"] * 8], WHOLE
    ),
    "cells of the scope without rows": Odd([ODD], CELLS_WITHOUT_ROWS),
    "an upload without rows beside another": Odd(
        [[], ODD], Scope({"land": ("EU", "MISSING")})
    ),
    "an erased upload": Odd([ODD], WHOLE, erase_upload),
    "an erased upload beside another": Odd([ODD, ODD], WHOLE, erase_upload),
}
PLAIN, FULL = "no row", "everything at once"


def stored(folder: Path, odd: Odd) -> PartRows:
    """The uploads as a part of a job, in row groups of seven rows."""
    ingest, files = Ingestion(folder, SCHEMA), []
    ingest.partitions = PARTITIONS
    for number, lines in enumerate(odd.bodies):
        ingest.destination = row_files.sealed_rows(
            ingest.store, "ds_a", f"ep_{number}", key=DATA_KEY
        )
        ingest(HEADER + "".join(lines))
        store_table(stored_table(ingest.destination), ingest.destination, group_rows=7)
        files.append(path_of(ingest.destination))
    odd.erases(ingest.store)
    return PartRows(
        SCHEMA.to_json(), tuple(files), PARTITIONS.to_json(), odd.scope, DATA_KEY
    )


@pytest.fixture(scope="module", autouse=True)
def small_files_have_codes() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(code_files, "FEWEST_ROWS", 1)
        patched.setattr(dask_fleet, "SHARD_ROWS", 7)
        yield


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> dict[str, PartRows]:
    """All files, by name."""
    return {
        name: stored(tmp_path_factory.mktemp("rows"), odd)
        for name, odd in FILES.items()
    }


@dataclass(frozen=True)
class Job:
    """What a job of one kind is asked to do.

    Attributes:
        kind: of the job.
        work: see :class:`app.services.jobs.task.JobTask`.
        n_trees: of a forest.
        n_parts: 2 for ``sspe-1``, whose parts are of one file here: growth reads it by
            two scopes.
        models: names of the models that are evaluated.
    """

    kind: str
    work: dict[str, Any]
    n_trees: int = 0
    n_parts: int = 1
    models: tuple[str, ...] = ()


def delta_of(accountant: str) -> Fraction | None:
    return None if accountant == "pure" else Fraction(1, 10**6)


def facts(accountant: str) -> PublicFacts:
    request = PlanRequest(
        "rpf", {}, Terms(Fraction(2), accountant, delta_of(accountant)), 1_000
    )
    return public_facts(
        request.terms, request.public_size, SCHEMA, Adjacency.ADD_REMOVE_ONE
    )


def training(
    slug: str, parameters: dict[str, object], profile: ReusedProfile | None = None
) -> Job:
    slug, _, accountant = slug.partition("@")
    accountant = accountant or "pure"
    request = request_for(
        slug,
        parameters,
        Fraction(1),
        1_000,
        accountant=accountant,
        delta=delta_of(accountant),
    )
    plan = forest_price.plan(replace(request, profile=profile), SCHEMA)
    return Job(
        "train",
        {"plan": plan.to_json()},
        plan.n_trees,
        1 if plan.unlabelled is None else 2,
    )


def evaluation(plan: EvaluationPlan, *models: str) -> Job:
    return Job(
        "evaluation",
        {"plan": plan.to_json(), "models": [{"digest": model} for model in models]},
        models=models,
    )


def profiling(parameters: dict[str, object], accountant: str) -> Job:
    return Job(
        "profile", {"plan": profile_price.plan(parameters, facts(accountant)).to_json()}
    )


def statistics(accountant: str) -> Job:
    """A table of each kind, of columns with everything that an upload may hold."""
    tables: list[dict[str, Any]] = [
        {"statistic": "crosstab", "columns": ["city", "kind"], "where": [{"column": "rank", "in": ["one"]}]},
        {"statistic": "histogram", "column": "income", "bins": {"income": [-1, 0, 1e-320]}},
        {"statistic": "sum", "column": "age", "by": ["city"], "where": [{"column": "income", "from": -5}]},
        {"statistic": "variance", "column": "age", "where": [{"column": "kind", "in": ["b", None]}]},
    ]  # fmt: skip
    plan = statistics_price.plan(tables, facts(accountant))
    return Job("statistics", {"plan": plan.to_json()})


def counting(table: str, model: str, accountant: str) -> Job:
    """An evaluation with one table."""
    return evaluation(plan_tables([table], facts(accountant), score_bins=4), model)


def choosing(accountant: str) -> Job:
    """A choice among all models."""
    plan = plan_best(2, facts(accountant), winner_accuracy=True)
    return evaluation(plan, *TRAINED)


Planned = Callable[[], Job]
"""Plans a job at its first call: every process imports this module."""


def planned_once(plan: Callable[..., Job], *asked: object) -> Planned:
    return cache(partial(plan, *asked))


SMALL: dict[str, object] = {"n_estimators": 2, "max_depth": 2}
TRAINED = {
    "rows": planned_once(training, "mrf", SMALL),
    "boosted": planned_once(training, "nbrt@gdp", SMALL),
}
"""Models that are evaluated: with the read-outs of leaves, and of scores."""


def jobs_of(accountant: str) -> dict[str, Planned]:
    """A job of every algorithm and every other kind on one account."""
    forests = [
        slug
        for slug in catalogue.BY_SLUG
        if accountant in catalogue.algorithm(slug).accountants
    ]
    tables = {
        table: planned_once(counting, table, model, accountant)
        for table, model in (
            ("accuracy", "boosted"),
            ("confusion", "rows"),
            ("auroc", "boosted"),
        )
    }
    jobs = {
        **{
            slug: planned_once(training, f"{slug}@{accountant}", SMALL)
            for slug in forests
        },
        **tables,
        "profile": planned_once(profiling, {"size_share": "0.1"}, accountant),
        "statistics": planned_once(statistics, accountant),
        "best": planned_once(choosing, accountant),
    }
    return {f"{name} {accountant}": job for name, job in jobs.items()}


USUAL = jobs_of("gdp")
OTHERS = {
    **jobs_of("pure"),
    **jobs_of("zcdp"),
    **{
        f"{slug} {parameters}": planned_once(training, slug, parameters)
        for slug, parameters in PLANS
    },
    "profile with other bins": planned_once(profiling, {"bins": "8"}, "pure"),
}


@pytest.fixture(scope="module")
def models(
    parts: dict[str, PartRows], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, bytes]:
    """The artifacts of models of rows that have everything."""
    return {
        name: output(job(), parts[FULL], tmp_path_factory.mktemp("model"), {})
        for name, job in TRAINED.items()
    }


def task_of(
    job: Job, part: PartRows, folder: Path, models: dict[str, bytes]
) -> JobTask:
    for model in job.models:
        path = input_path(folder, model)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(models[model])
    parts = (
        (part,)
        if job.n_parts == 1
        else (part, replace(part, scope=Scope({**part.scope, "shard": range(128)})))
    )
    return JobTask(
        job.kind, "jb_1", folder, job.work, job.n_trees, parts, {"expected_rows": 1_000}
    )


def output(job: Job, part: PartRows, folder: Path, models: dict[str, bytes]) -> bytes:
    """The output of a job in this process."""
    task, done = task_of(job, part, folder, models), list[None]()
    perform(task, on_tree_done=lambda: done.append(None))
    assert len(done) == job.n_trees
    return task.output_path.read_bytes()


def shape_of(job: Job, released: bytes) -> object:
    """Everything about an output but its released numbers; the output is read as its
    readers do.
    """
    if job.kind == "train":
        artifact = released_forest.loads(released)
        rows = [
            {"income": 1, "age": 3, "city": "c7", "fixed": 2.5, "rank": "one"},
            {"age": 0, "fixed": 2.5, "rank": "?"},
        ]
        columns = artifact.predictor.rows.sanitise(rows)
        for read_out in artifact.predictor.read_outs:
            shares = artifact.predictor.probabilities(columns, read_out=read_out)
            assert np.isfinite(shares).all()
        return sorted(
            (name, array.shape, array.dtype)
            for name, array in artifact.forest.arrays.items()
        )
    if job.kind == "profile":
        profiled = Profile.from_json(json.loads(released), SCHEMA)
        assert np.isfinite([*profiled.counts_in_rows, profiled.size_in_rows]).all()
        return sorted(profiled.edges()), len(profiled.counts_in_rows)
    if job.kind == "statistics":
        tables = Statistics.from_json(json.loads(released), SCHEMA)
        shapes = [[len(sums) for sums in table] for table in tables.measured]
        ends = [[each.low, each.high] for i in range(4) for each in tables.estimates(i)]
        assert np.isfinite(ends).all()
        return shapes
    evaluated = Evaluation.from_json(json.loads(released))
    for estimate in (metrics.accuracy(evaluated), metrics.auroc(evaluated)):
        assert (
            estimate is None or estimate.estimate is None or 0 <= estimate.estimate <= 1
        )
    return evaluated.plan, sorted(
        (name, table.shape) for name, table in evaluated.tables.items()
    )


def shapes_of(
    jobs: Sequence[Job],
    parts: Sequence[PartRows],
    folder: Path,
    models: dict[str, bytes],
) -> list[list[object]]:
    """For each job, the shapes of its outputs on each file."""
    folders = (folder / str(number) for number in count())

    def shape(job: Job, part: PartRows) -> object:
        own = next(folders)
        own.mkdir()
        return shape_of(job, output(job, part, own, models))

    return [[shape(job, part) for part in parts] for job in jobs]


@pytest.mark.parametrize("name", [*USUAL, *OTHERS])
def test_a_job_on_any_file_leaves_an_output_of_one_shape(
    name: str, parts: dict[str, PartRows], models: dict[str, bytes], tmp_path: Path
) -> None:
    files = list(parts.values()) if name in USUAL else [parts[FULL], parts[PLAIN]]
    [shapes] = shapes_of([(USUAL | OTHERS)[name]()], files, tmp_path, models)
    assert shapes == shapes[:1] * len(shapes)


@pytest.mark.parametrize("profiled", [FULL, PLAIN, "one class"])
def test_a_profile_of_any_file_serves_a_job_on_any_file(
    profiled: str, parts: dict[str, PartRows], tmp_path: Path
) -> None:
    """The counts of a profile may all be negative, and its cuts all be equal."""
    released = output(USUAL["profile gdp"](), parts[profiled], tmp_path, {})
    reused = Profile.from_json(json.loads(released), SCHEMA).reused("pf_1")
    slugs = [
        slug for slug in catalogue.BY_SLUG if catalogue.algorithm(slug).reuses_profiles
    ]
    assert len(slugs) > 5
    jobs = [training(f"{slug}@gdp", SMALL, reused) for slug in slugs]
    for shapes in shapes_of(jobs, [parts[FULL], parts[PLAIN]], tmp_path, {}):
        assert shapes[0] == shapes[1]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WorkersHere]:
    with workers_here(
        tmp_path_factory.mktemp("dask"), n_workers=2, is_tcp=True
    ) as running:
        yield running


ON_A_CLUSTER = [
    slug for slug in catalogue.BY_SLUG if not catalogue.algorithm(slug).reads_values
]


@pytest.mark.parametrize("name", [FULL, PLAIN])
def test_a_job_on_a_cluster_leaves_an_output_of_the_same_shape(
    name: str, parts: dict[str, PartRows], workers: WorkersHere, tmp_path: Path
) -> None:
    """The rows are with the workers as long as the job is."""
    cluster = DaskCluster(workers.cluster.scheduler_address, None, None, None, 60)
    for slug in [*ON_A_CLUSTER, "statistics"]:
        job, folder = USUAL[f"{slug} gdp"](), tmp_path / slug
        folder.mkdir()
        task = replace(
            task_of(job, parts[name], folder, {}), job_id=f"jb_{slug}", cluster=cluster
        )
        perform(task, on_tree_done=lambda: None)
        released = task.output_path.read_bytes()
        task.output_path.unlink()
        assert shape_of(job, released) == shape_of(
            job, output(job, parts[name], folder, {})
        ), slug
    wait_for(lambda: not any(workers.memories.of.values()))


@pytest.mark.parametrize("name", USUAL)
def test_the_child_of_a_job_succeeds_and_says_how_many_trees_it_grew(
    name: str, parts: dict[str, PartRows], models: dict[str, bytes], tmp_path: Path
) -> None:
    for file in (
        [FULL, PLAIN] if name in ("mrf gdp", "profile gdp", "best gdp") else [FULL]
    ):
        job, folder = USUAL[name](), tmp_path / file
        folder.mkdir()
        task = task_of(job, parts[file], folder, models)
        child = forked_program.start(
            "tests.support.child_of_a_job",
            folder=ROOT,
            environ=scrubbed_environment(),
            log=tmp_path / "log",
            piped=True,
        )
        assert child.stdout is not None
        child.stdin.write(task.to_text().encode() + b"\n")
        said, exit_code = child.stdout.read(), child.wait()
        child.close()
        assert (exit_code, said) == (0, "." * (2 + job.n_trees)), (
            "loaded, began, and one for each tree"
        )
        shape_of(job, task.output_path.read_bytes())
