"""The command that makes careless changes notices what survives; run whole, it finds no
survivor without a reason.
"""

import ast
import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import TypeAlias

import pytest

from app.core import stamps
from tests.privacy import marked_lines, mutants, mutations
from tests.privacy.marked_lines import MarkedLines, functions_of_process
from tests.privacy.mutations import ROOT, Mutant, modules, mutants_of, tree_of
from tests.support.line_process import line_process
from tests.support.sources import name_of, sources

TEST = "tests/privacy/test_paid_draws.py::test_a_forest_draws_everything_that_its_event_pays_for[rdt-ta-pure]"
NOISE = "grovekeeper_forests.bins.releases"
ELSEWHERE = "grovekeeper_forests.algorithms.nbrt.grow"
"""A module that growth of ``rdt-ta`` does not enter."""


Run: TypeAlias = Callable[..., tuple[int, str]]
"""Runs the first mutants of a module, with a part of their keys, against ``TEST`` alone
and other reasons; returns the exit status and what was printed.
"""


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., str]]:
    """The process whose forks run mutants."""
    errors = tmp_path_factory.mktemp("mutants") / "errors"
    with line_process("tests.privacy.forked_mutants", errors=errors) as call:
        yield call


@pytest.fixture
def run(process: Callable[..., str], tmp_path: Path) -> Run:
    def run(
        module: str,
        *,
        listed: list[str],
        part: str = "",
        is_complete: bool = False,
        anew: bool = False,
        is_near: bool = False,
    ) -> tuple[int, str]:
        (tmp_path / "reasons.json").write_text(
            json.dumps([{"reason": "harmless", "mutants": listed}])
        )
        chosen = {"module": module, "part": part, "test": TEST}
        options = {"is_complete": is_complete, "anew": anew, "is_near": is_near}
        answer = process({"folder": str(tmp_path), **chosen, **options})
        status, printed = json.loads(answer)
        return status, printed

    return run


def test_a_doubled_scale_is_made_and_noticed(run: Run) -> None:
    keys = [mutant.key for mutant in mutants_of(NOISE)]
    assert any(
        "| exact + randomness.discrete_laplace(" in key and key.endswith("| exact")
        for key in keys
    ), "no noise"
    status, output = run(NOISE, listed=[], part="inverse_scale=2 * event.inverse_scale")
    assert status == 0, output
    assert "1 mutants: 1 noticed, 0 listed" in output
    assert "1 mutants, 1 tests beyond them" in output

    status, output = run(NOISE, listed=[], part="inverse_scale=2 * event.inverse_scale")
    assert "beyond them" not in output, "judged in the first run"
    assert "1 mutants: 1 noticed, 0 listed" in output
    status, output = run(
        NOISE,
        listed=[],
        part="inverse_scale=2 * event.inverse_scale",
        anew=True,
    )
    assert "1 mutants, 1 tests beyond them" in output


def test_a_survivor_without_a_reason_fails_and_so_does_a_reason_without_a_mutant(
    run: Run,
) -> None:
    keys = [mutant.key for mutant in mutants_of(ELSEWHERE)][:4]
    status, output = run(ELSEWHERE, listed=keys[1:])
    assert (
        status,
        [line for line in output.splitlines() if line.startswith("SURVIVED")],
    ) == (
        1,
        [f"SURVIVED {keys[0]}"],
    )
    assert run(ELSEWHERE, listed=keys)[0] == 0
    status, output = run(
        ELSEWHERE, listed=[*keys, "app.gone:name | 1 | 2"], is_complete=True
    )
    assert status == 1
    assert "NOT MADE ANY MORE app.gone:name | 1 | 2" in output


def test_a_run_of_near_tests_leaves_what_they_do_not_notice(run: Run) -> None:
    part = "inverse_scale=2 * event.inverse_scale"
    status, output = run(NOISE, listed=[], part=part, is_near=True)
    assert status == 1
    assert "LEFT" in output
    assert "beyond them" not in output
    assert "SURVIVED" not in output


def test_each_mechanism_and_charge_has_mutants() -> None:
    """Found from the code: whoever draws or prices is there without being listed."""
    made = {module: mutants_of(module) for module in modules()}
    for name in ("algorithms.nbrt.grow", "algorithms.rpf.grow", "trees.tree_growth"):
        assert made[f"grovekeeper_forests.{name}"]
    for name in ("forest.price", "profile.price", "evaluation.price", "choice.price"):
        assert made[f"grovekeeper_forests.releases.{name}"]
    assert made["app.services.execution.charge"]
    assert made["app.ledger.admission"]
    files = [name_of(path).removesuffix(".py").replace("/", ".") for path in sources()]
    for name in (
        "datasets.private_rows",
        "jobs.queue",
        "ledger.chain",
        "services.drawing.dask_fleet",
    ):
        assert made[f"app.{name}"]
    for name in (*mutations.WHOLE, *mutations.LEFT_OUT, *mutations.READS_ROWS):
        assert any(module.startswith(name) for module in files), f"{name} has moved"
    keys = [mutant.key for mutants in made.values() for mutant in mutants]
    assert len(keys) == len(set(keys))


OMISSIONS = {
    "a part of a tuple that is a key": (
        "def key_of(job, file): return job, file",
        "(job, None)",
    ),
    "a part of a tuple that is looked up": (
        "def f(d, job, file): return d[job, file]",
        "(None, file)",
    ),
    "a part of a tuple that is sorted by": (
        "def f(s): return sorted(s, key=lambda a: (a.id, a.at))",
        "(a.id, None)",
    ),
    "a part of a tuple that is hashed": (
        "def f(rows, place): return digest((rows, *place))",
        "(*place,)",
    ),
    "a part of a text": ("def f(job, n): return f'sums-{job}-{n}'", "f'sums--{n}'"),
    "a member of a dictionary": (
        "def f(a, b): return {'id': a, 'scope': b}",
        "{'id': a}",
    ),
    "all but the largest": ("def f(s): return sum(s)", "max(s, default=0)"),
    "all but the largest of an array": (
        "def f(s): return s.sum(axis=1)",
        "s.max(axis=1)",
    ),
    "the second of two bounds": ("def f(a, b): return min(a, b)", "a"),
    "an argument for its default": ("def f(a, b): return g(a, scope=b)", "g(a)"),
    "the last argument for its default": ("def f(a, b): return g(a, b)", "g(a)"),
    "a name, so that the first is read": (
        "def f(d, name): return d[name]",
        f"{mutations._FIRST}(d)",
    ),
    "a name, so that the first of some is read": (
        "def f(d, n): return d.get(n, 0)",
        f"{mutations._FIRST}(d, 0)",
    ),
    "a condition of what is read": ("def f(s): return [a for a in s if a.ok]", "True"),
    "a condition of a query": ("def f(q, a, b): return q.where(a, b)", "q.where(b)"),
    "the only condition of a query": ("def f(q, a): return q.where(a)", "q"),
    "the last of what is read": ("def f(s): return [a for a in s]", "[*s][:-1]"),
    "all but the first of what is read": (
        "def f(s, t):\n for a in s or t: g(a)",
        "[*(s or t)][:1]",
    ),
    "all but the first of a list": (
        "def f(s): return list(s.all())",
        "list([*s.all()][:1])",
    ),
    "all but the first of what a query names": (
        "def f(q, ids): return q.id.in_(ids)",
        "q.id.in_([*ids][:1])",
    ),
    "the second of two sets": ("def f(a, b): return a | b", "a"),
    "the copy of an object": ("def f(a): return a.copy()", "a"),
    "the copy of a dictionary": ("def f(a): return {**a}", "a"),
    "the copy of a list": ("def f(a): return list(a.members)", "a.members"),
    "one of two comparisons": (
        "def f(a, b): return (a.x, a.y) == (b.x, b.y)",
        "(a.x,) == (b.x,)",
    ),
    "one comparison of a chain": ("def f(a, b, c): return a < b < c", "b < c"),
    "a refusal": ("def f(a, b):\n if a != b:\n  a.log()\n  raise E", "pass"),
    "a check": ("def f(a):\n require_paid(a)", "pass"),
    "rows after many": ("def f(n_rows): return g(n_rows)", "min(n_rows, 2097152)"),
    "a table after many": (
        "def f(s):\n for a in s: g(a)",
        f"{mutations._UNTIL_MANY_ROWS}(s)",
    ),
}


def tiny(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> list[Mutant]:
    """The changes of an application of one module."""
    monkeypatch.setattr(mutations, "WHOLE", ("app.tiny",))
    monkeypatch.setattr(mutations, "_ABOVE", {"app": folder})
    (folder / "app").mkdir()
    (folder / "app" / "tiny.py").write_text(source)
    return mutants_of("app.tiny")


@pytest.mark.parametrize("kind", OMISSIONS)
def test_what_belongs_together_is_left_out_part_by_part(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    source, expected = OMISSIONS[kind]
    monkeypatch.setattr(mutations, "READS_ROWS", ("app.tiny",))
    made = tiny(monkeypatch, tmp_path, source)
    assert expected in [mutant.change.source for mutant in made]
    for mutant in made:
        compile(tree_of(mutant), "app.tiny", "exec")


def test_an_argument_without_a_default_is_not_left_out(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its absence would fail every test."""
    source = "def g(a, b=1, *, c, d=2): ...\ndef f(a, b): return g(a, b, c=a, d=b)"
    mutations._signatures.cache_clear()
    made = [mutant.change.source for mutant in tiny(monkeypatch, tmp_path, source)]
    mutations._signatures.cache_clear()
    assert made == ["g(b, a, c=a, d=b)", "g(a, c=a, d=b)", "g(a, b, c=a)"]


SAME = {
    "conditions of a query": (
        "def f(q, a, b): return q.where(a, b)",
        ["q.where(b)", "q.where(a)"],
    ),
    "conditions beside each other": ("def f(a, b): return or_(a, b)", ["or_(a)"]),
    "a session": ("def f(session, a): return g(session, a)", ["g(session)"]),
    "a type": ("T = TypeVar('T', int, float)\ndef f(a): return g(T)", []),
    "a type of members": ("def f(a): return g(tuple[int, ...])", []),
    "a name of a type": ("T: TypeAlias = int | str\ndef f(a: T): return g(a)", []),
    "a type that has no annotation": ("T = int | str\ndef f(a: T): return g(a)", []),
    "a union that is no type": (
        "ALL = SOME | OTHERS\ndef f(a): return g(ALL)",
        ["SOME", "OTHERS"],
    ),
    "a type that is asked for": (
        "T: TypeAlias = int | str\ndef f(a): return isinstance(a, T)",
        ["int", "str"],
    ),
    "equal arguments": ("def f(a): return g(a, a)", ["g(a)"]),
    "the only answer": ("def f(a): return g([a]).get(a)", []),
    "the only member": ("def f(q): return q.in_(bindparam('ids'))", []),
    "nothing in the place of what is not there": ("def f(a): return a.b or {}", ["{}"]),
}


def test_names_that_a_module_reads_are_not_those_of_a_module_that_was_read_before() -> (
    None
):
    """The second tree may get the place in memory of the first one."""
    for number in range(20):
        source = f"def f(randomness): return g(NAME_{number}, randomness)"
        names = mutations._used_names(ast.parse(source), is_whole=False)
        assert f"NAME_{number}" in names


def test_what_an_owner_declared_is_not_read_in_part_as_rows_are(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(mutations, "READS_ROWS", ("app.tiny",))
    made = tiny(
        monkeypatch,
        tmp_path,
        "def f(columns, groups):\n for a in columns: g(a)\n for b in groups: g(b)",
    )
    cut = [
        mutant.change.source
        for mutant in made
        if mutations._UNTIL_MANY_ROWS in mutant.change.source
    ]
    assert cut == [f"{mutations._UNTIL_MANY_ROWS}(groups)"]


@pytest.mark.parametrize("kind", SAME)
def test_changes_that_mean_the_same_or_fail_by_their_type_are_not_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    source, expected = SAME[kind]
    assert [
        mutant.change.source for mutant in tiny(monkeypatch, tmp_path, source)
    ] == expected


def test_a_change_has_the_lines_of_its_statement_and_of_no_other(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Not those of the statements inside: a test that runs one of its lines can notice
    it.
    """
    source = "def f(a):\n if a < 1:\n  b = g(\n   a + 1)\n else:\n  b = 5\n return b\n"
    made = tiny(monkeypatch, tmp_path, source)
    lines = {mutant.key.split(" | ")[1]: mutant.lines for mutant in made}
    assert lines == {
        "a < 1": mutations.bits([2]),
        "1": mutations.bits([3, 4]),
        "a + 1": mutations.bits([3, 4]),
        "5": mutations.bits([6]),
    }


def test_tests_of_the_same_lines_come_after_those_of_others() -> None:
    prices = {"a": 1.0, "b": 1.1, "c": 1.2, "d": 1.3, "e": 9.0}
    lines = {"a": 1, "b": 1, "c": 2, "d": 1, "e": 3}
    assert mutants._different_first(prices, lines) == list("acbde")


@pytest.fixture
def marks() -> Iterator[MarkedLines]:
    functions = functions_of_process()
    file = mutations.file_of("app.core.stamps")
    chosen = {place: functions[place] for place in functions if place[0] == str(file)}
    marked_lines = MarkedLines(chosen)
    yield marked_lines
    marked_lines.undo()


def test_the_lines_that_a_block_runs_are_noted_in_every_thread_and_fork(
    marks: MarkedLines,
) -> None:
    def in_a_thread() -> None:
        thread = Thread(target=stamps.is_id, args=("x",))
        thread.start()
        thread.join()

    def in_a_fork() -> None:
        pid = os.fork()
        if pid == 0:
            stamps.is_id("x")
            os._exit(0)
        os.waitpid(pid, 0)

    noted = []
    for act in (in_a_thread, in_a_fork, lambda: stamps.is_id("x")):
        with marks.entered() as entered:
            act()
        noted.append(entered)
    assert noted[0] == noted[1] == noted[2]
    first = inspect.getsourcelines(stamps.is_id)[1]
    assert (
        noted[0]["app.core.stamps"] & ~mutations.bits(range(first, first + 9))
        == 0
        != noted[0]["app.core.stamps"]
    )


def test_functions_are_as_they_were_after_their_lines_were_marked() -> None:
    before = stamps.is_id.__code__
    marked_lines = MarkedLines(functions_of_process())
    assert stamps.is_id.__code__ is not before
    marked_lines.undo()
    assert stamps.is_id.__code__ is before


def test_each_change_of_a_function_is_on_a_line_that_is_marked() -> None:
    """Otherwise no test would be known that enters it."""
    for module in modules():
        tree = marked_lines.marked(ast.parse(mutations.file_of(module).read_text()))
        of_marks = mutations.bits(
            node.lineno
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == marked_lines.MARKS
        )
        functions = {scope for scope, node in mutations._scopes(tree) if is_def(node)}
        for mutant in mutants_of(module):
            assert mutant.scope not in functions or mutant.lines & of_marks, mutant


def is_def(node: ast.AST) -> bool:
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def test_a_test_has_more_time_where_others_wait_for_a_processor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for load, expected in ((0.1, 1.0), (2.0, 1.0), (12.0, 6.0)):
        monkeypatch.setattr(os, "getloadavg", lambda load=load: (load, 0.0, 0.0))
        assert mutants._slowness() == expected


def test_a_comment_or_docstring_is_no_reason_to_judge_again(tmp_path: Path) -> None:
    texts = {
        "first": 'def f(a):\n    """Adds."""\n    return a + 1\n',
        "same": "def f(a):\n    'Adds one.'\n    return a + 1  # more\n",
        "other": "def f(a):\n    'Adds one.'\n    return a + 2\n",
    }
    statements = {}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
        statements[name] = mutants._statements(tmp_path / name)
    assert statements["first"] == statements["same"] != statements["other"]


NOTICING = """
from a import b, c
import pytest
LIMIT = 1
@pytest.fixture(autouse=True)
def always(): c(2)
@pytest.fixture
def f(): return LIMIT + 3
@pytest.fixture
def g(): return 4
def test_a(f): assert f == b(5)
def test_b(g): assert g == 6
"""


@pytest.mark.parametrize(
    ("old", "new", "is_other"),
    [
        ("b(5)", "b(7)", True),
        ("+ 3", "+ 7", True),
        ("LIMIT = 1", "LIMIT = 7", True),
        ("c(2)", "c(7)", True),
        ("from a import b", "from d import b", True),
        ("return 4", "return 7", False),
        ("g == 6", "g == 7", False),
        ("import pytest", "import pytest, math", False),
        ("from a import b, c", "from a import b, c, d", False),
    ],
)
def test_what_a_test_does_not_name_is_no_reason_to_judge_again(
    tmp_path: Path, old: str, new: str, is_other: bool
) -> None:
    paths = tmp_path / "before", tmp_path / "after"
    assert NOTICING.count(old) == 1
    for path, source in zip(paths, (NOTICING, NOTICING.replace(old, new)), strict=True):
        path.write_text(source)
    before, after = (mutants._statements(path, of_test="test_a") for path in paths)
    assert (before != after) == is_other
    assert mutants._statements(paths[0]) != mutants._statements(paths[1])


def test_a_fork_that_ended_before_its_first_test_noticed_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = (["a", mutants._ENDED, ""], ["b", f"{mutants._ENDED}test_b", ""])
    progress = tmp_path / "progress"
    progress.write_text("\n".join(map(json.dumps, lines)))
    monkeypatch.setattr(mutants, "PROGRESS", progress)
    monkeypatch.setattr(mutants, "NOTICED", tmp_path / "absent")
    assert mutants._earlier() == {"b": "ended in test_b"}


def test_what_is_read_by_position_is_the_first() -> None:
    assert (
        mutations.first({"b": 1, "a": 2})
        == mutations.first([1, 2])
        == mutations.first({}, 1)
        == 1
    )


def test_a_reader_that_stops_after_many_rows_reads_few_rows_whole() -> None:
    few, many = SimpleNamespace(num_rows=2**20), SimpleNamespace(num_rows=2**21)
    assert list(mutations.until_many_rows([few, (1, few), few])) == [few, (1, few)]
    assert list(mutations.until_many_rows([many, few])) == [many]
    assert list(mutations.until_many_rows(range(40))) == list(range(16))


@pytest.mark.long
@pytest.mark.timeout(12 * 3600)
def test_no_careless_change_survives_without_a_reason() -> None:
    subprocess.run(
        [sys.executable, "-m", "tests.privacy.mutants"], cwd=ROOT, check=True
    )
