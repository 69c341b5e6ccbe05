"""Makes careless changes in the mechanisms one by one and runs the tests that must
notice them.

``python -m tests.privacy.mutants [MODULE …]`` collects the tests of ``FOLDERS``, notes
which lines each of them enters, and changes the code of a fork of this process for
each mutant; the working tree stays as it is. In the fork the tests that enter the
changed line run until one fails, first the fast ones and those that noticed other
mutants of the function and of the module. Tests that name the module come first, then
those of files that import such a file, then all others; each run on what those before
did not notice. The command prints every mutant that no test notices, and fails if one
of them is not in the list of ``WITHOUT_EFFECT`` with a reason, or if the list names a
mutant that is not made any more.

A run that was stopped goes on where it ended: a mutant is not judged again while its
module and the test that noticed it are as they were, but for comments. ``--anew`` judges all of them.
``--keep`` adds what was noticed to a file of the repository, so that the next developer
goes on there: a whole run takes hours.
"""

from __future__ import annotations

import argparse
import ast
import gc
import hashlib
import json
import lzma
import os
import pickle
import re
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import pytest
from _pytest.runner import call_and_report
from sqlalchemy.exc import SQLAlchemyError

from tests.privacy.marked_lines import (
    Functions,
    Lines,
    MarkedLines,
    codes_of,
    functions_of_process,
)
from tests.privacy.mutations import (
    PRODUCT,
    ROOT,
    Mutant,
    file_of,
    modules,
    mutants_of,
    tree_of,
)
from tests.support.memory import folder_in_memory

FOLDERS: Final = (
    "tests/privacy",
    "tests/pure/core/test_sealed_files_properties.py",
    "tests/pure/datasets",
    "tests/pure/forests",
    "tests/pure/jobs",
    "tests/pure/ledger",
    "tests/pure/privacy",
    "tests/pure/releases",
    "tests/pure/services/drawing",
    "tests/pure/verifier/test_verifier_conversions.py",
    "tests/database/test_account_calls.py",
    "tests/database/test_approvals.py",
    "tests/database/test_authority.py",
    "tests/database/test_boxes_of_jobs.py",
    "tests/database/test_caps.py",
    "tests/database/test_charged_jobs.py",
    "tests/database/test_cluster_of_jobs.py",
    "tests/database/test_continued_accounts.py",
    "tests/database/test_deletion_of_queues.py",
    "tests/database/test_delta_set_aside.py",
    "tests/database/test_erased_names.py",
    "tests/database/test_erasure_dates.py",
    "tests/database/test_erasure_records.py",
    "tests/database/test_external_charges.py",
    "tests/database/test_golden.py",
    "tests/database/test_job_balances.py",
    "tests/database/test_job_kinds.py",
    "tests/database/test_key_lifetime.py",
    "tests/database/test_ledger.py",
    "tests/database/test_ledger_boxes.py",
    "tests/database/test_ledger_by_key.py",
    "tests/database/test_ledger_of_a_job.py",
    "tests/database/test_ledger_units.py",
    "tests/database/test_limits_of_one_job.py",
    "tests/database/test_limits_of_the_verifier.py",
    "tests/database/test_lists.py",
    "tests/database/test_paid_jobs.py",
    "tests/database/test_population_calls.py",
    "tests/database/test_population_chains.py",
    "tests/database/test_population_members.py",
    "tests/database/test_populations.py",
    "tests/database/test_queue.py",
    "tests/database/test_queue_expiry.py",
    "tests/database/test_queue_order.py",
    "tests/database/test_queue_readings.py",
    "tests/database/test_queue_settling.py",
    "tests/database/test_queue_supervisor.py",
    "tests/database/test_queue_tidy_rows.py",
    "tests/database/test_queue_turns.py",
    "tests/database/test_read_states.py",
    "tests/database/test_rewritten_entries.py",
    "tests/database/test_room_of_jobs.py",
    "tests/database/test_rule_changes.py",
    "tests/database/test_rules.py",
    "tests/database/test_stated_states.py",
    "tests/database/test_statements_of_entries.py",
    "tests/database/test_states.py",
    "tests/database/test_submissions.py",
    "tests/database/test_tampered_rows.py",
    "tests/database/test_two_accounts.py",
    "tests/database/test_unit_erasure.py",
    "tests/database/test_unit_rows.py",
    "tests/database/test_upload_erasure.py",
    "tests/database/walks",
)
WITHOUT_EFFECT: Final = Path(__file__).with_name("mutants_without_effect.json")
"""Reasons, each with the keys of the mutants that no test notices because of it."""

PROGRESS: Final = ROOT / ".pytest_cache" / "mutants.jsonl"
"""Outcome of every mutant of the last runs, and of what it follows. The test that
noticed it then runs first.
"""

NOTICED: Final = Path(__file__).with_name("mutants_noticed.jsonl.xz")
"""The same for mutants that a test noticed, of all runs that ended with ``--keep``."""

TRACES: Final = PROGRESS.with_name("mutants_tests.pickle")
"""The lines that each test entered, and the time that it took, for the text of the test
and of what it entered.
"""

SURVIVED: Final = "survived"
_ENDED: Final = "ended in "
"""Before the name of a test in which a mutant took too long, or that ended its process."""

_SHARED: Final = ("_migrated_sqlite", "_installation_on_sqlite", "_scene_on_sqlite")
"""Fixtures of a session that are made once, before all forks: they take longer than
most tests.

A mutant that no test notices runs once more with such fixtures of its own, if they
enter the changed function.
"""

_DISTANCES: Final = (
    "that name the modules",
    "of files that import others that do",
    "beyond them",
)
"""Tests by what notices a change of a module soonest. The first are few for each module,
so that a run which is stopped early has judged most changes.
"""

_TRACED_TOGETHER: Final = 100
_WORTH_OF_WORD: Final = 4
"""A test whose name shares a word with a change runs as early as one that noticed so
many changes of the module.
"""

_WORTH_OF_SCOPE: Final = 4
"""The same for a change of the same function that it noticed, beside that of the
module.
"""

_LIMIT_S: Final = 4.0
"""CPU time of a test of a mutant beyond three times that without a change. An endless
loop counts as noticed.
"""

_WAIT_S: Final = 10.0
"""The same in time of the clock, for a test that waits. A busy machine gets more time,
as many times as there are processes for each of its processors.
"""


def main(arguments: Sequence[str]) -> int:
    """Runs the mutants of modules, or of all modules; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.privacy.mutants", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "modules",
        metavar="MODULE",
        nargs="*",
        help="a dotted name; all modules by default",
    )
    parser.add_argument(
        "--processes", type=int, default=2, help="how many mutants run at once"
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=60.0,
        help="of tests, as long as they take without a change, that one mutant meets at most: of those that name its "
        "module, and of others",
    )
    parser.add_argument(
        "--anew",
        action="store_true",
        help="judge mutants again that were judged in an earlier run",
    )
    parser.add_argument(
        "--near",
        action="store_true",
        help="leave to another run what no test notices of those that name its module",
    )
    parser.add_argument(
        "--keep",
        action="store_true",
        help="add what was noticed to the repository, also by earlier runs here, and what is out of date leaves it",
    )
    given = parser.parse_args(arguments)
    mutants = [
        mutant for module in given.modules or modules() for mutant in mutants_of(module)
    ]
    is_complete = not given.modules
    by = {"n_processes": given.processes, "seconds": given.seconds, "anew": given.anew}
    status = run(mutants, FOLDERS, is_complete=is_complete, is_near=given.near, **by)
    if given.keep:
        keep()
    return status


def run(
    mutants: Sequence[Mutant],
    folders: Sequence[str],
    *,
    is_complete: bool,
    n_processes: int = 2,
    seconds: float = 60.0,
    anew: bool = False,
    is_near: bool = False,
) -> int:
    """Runs mutants against the tests of folders; returns 1 where one survives without a
    reason, else 0.
    """
    reasons = {
        key: group["reason"]
        for group in json.loads(WITHOUT_EFFECT.read_text())
        for key in group["mutants"]
    }
    unlisted = [mutant for mutant in mutants if mutant.key not in reasons]
    server = _Server(
        unlisted,
        _judged(unlisted) if not anew else {},
        n_processes=n_processes,
        seconds=seconds,
        is_near=is_near,
    )
    options = [
        "-q",
        "-s",
        "--tb=no",
        "-p",
        "no:cacheprovider",
        "-o",
        "timeout=0",
        "-o",
        "addopts=",
    ]
    chosen = [
        "--strict-markers",
        "--import-mode=importlib",
        "-m",
        # what a developer's run leaves out of a matrix may notice a change, too
        "not long or covering or in_turn",
        "-k",
        "not postgresql",
    ]
    with tempfile.TemporaryDirectory(dir=folder_in_memory()) as kept:
        # The folder of a test goes with it: there are thousands, and another run of
        # pytest would take all of them.
        options += ["-o", "tmp_path_retention_policy=none", f"--basetemp={kept}/tests"]
        if pytest.main(
            [*options, *chosen, *(str(ROOT / folder) for folder in folders)],
            plugins=[server],
        ):
            return 2
    survivors = [
        mutant.key
        for mutant in unlisted
        if server.outcomes.get(mutant.key, SURVIVED) == SURVIVED
    ]
    stale = (
        reasons.keys() - {mutant.key for mutant in mutants} if is_complete else set()
    )
    for key in survivors:
        print("LEFT" if is_near else SURVIVED.upper(), key)
    for name in server.failing:
        print("FAILS WITHOUT A CHANGE", name)
    for key in sorted(stale):
        print("NOT MADE ANY MORE", key)
    for module, made in sorted(Counter(mutant.module for mutant in mutants).items()):
        of_module = [key for key in survivors if key.startswith(f"{module}:")]
        n_run = sum(mutant.module == module for mutant in unlisted)
        print(
            f"{module}: {made} mutants, {n_run - len(of_module)} noticed, {made - n_run} listed, {len(of_module)} not"
        )
    n_listed = len(mutants) - len(unlisted)
    print(
        f"{len(mutants)} mutants: {len(unlisted) - len(survivors)} noticed, {n_listed} listed and not run"
    )
    return 1 if survivors or stale or server.failing else 0


class _Server:
    """A plugin of pytest that forks a process for each mutant in place of running the
    tests.
    """

    def __init__(
        self,
        mutants: Sequence[Mutant],
        judged: dict[str, str],
        *,
        n_processes: int,
        seconds: float,
        is_near: bool,
    ) -> None:
        self.mutants, self.outcomes = mutants, judged
        self.failing = list[str]()
        self._n_processes, self._seconds = n_processes, seconds
        self._is_near = is_near
        self._noticed = defaultdict[str, Counter[str]](Counter)
        for key, outcome in _earlier().items():
            self._note(key, outcome)
        self._failed = False
        self._shared = dict[str, Lines]()
        self._shared_by = dict[str, set[str]]()

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """The first example that shows a mutant will do: no search for a smaller one."""
        # which pytest loads first, so that it can rewrite its assertions
        from hypothesis import Phase, settings

        usual = settings.get_profile("repeatable")
        settings.register_profile(
            "mutants", usual, phases=(Phase.explicit, Phase.generate)
        )
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    def pytest_runtest_call(self, item: Any) -> None:
        """Notes which fixtures of ``_SHARED`` a test has: only a test that is set up
        knows it.
        """
        self._shared_by[item.nodeid] = (
            self._shared.keys() & item._request._fixture_defs.keys()
        )

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        assert not session.testsfailed, "tests that cannot be collected"
        self._items = {item.nodeid: item for item in session.items}
        self._share()
        self._functions, self._caches = functions_of_process(), _caches()
        self._forget_results()
        gc.freeze()  # so that forks share their memory
        PROGRESS.parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory() as folder, PROGRESS.open("a") as progress:
            self._folder, self._progress = Path(folder), progress
            unknown = [
                mutant for mutant in self.mutants if mutant.key not in self.outcomes
            ]
            for distance in _DISTANCES[: 1 if self._is_near else None]:
                for module in dict.fromkeys(mutant.module for mutant in unknown):
                    self._run(
                        [mutant for mutant in unknown if mutant.module == module],
                        distance,
                    )
                unknown = [
                    mutant
                    for mutant in unknown
                    if self.outcomes[mutant.key] == SURVIVED
                ]
        return True

    def _share(self) -> None:
        """Makes the fixtures of ``_SHARED``, and notes which lines they enter."""
        marks = MarkedLines(functions_of_process())
        for name in _SHARED:
            for item in self._items.values():
                if item.session._fixturemanager.getfixturedefs(name, item):
                    with marks.entered() as lines:
                        call_and_report(item, "setup", log=False)
                        item._request.getfixturevalue(name)  # type: ignore[attr-defined]
                        # see _run_item
                        call_and_report(
                            item, "teardown", log=False, nextitem=item.session
                        )
                    self._shared[name] = lines
                    item._initrequest()  # type: ignore[attr-defined]
                    break
        marks.undo()

    def _run(self, mutants: Sequence[Mutant], distance: str) -> None:
        """Runs the tests at a distance of ``_DISTANCES`` from the module of a mutant."""
        began, before = time.monotonic(), _earlier()
        waiting, running = list(reversed(mutants)), dict[int, tuple[Mutant, Path]]()
        chosen = {
            module: self._chosen(module, distance)
            for module in {mutant.module for mutant in mutants}
        }
        entered, durations = self._traced(sorted(set().union(*chosen.values())))
        n_done, duration = 0, sum(durations.values())
        print(
            f"{len(waiting)} mutants, {len(durations)} tests {distance}: {duration:.0f} s",
            flush=True,
        )
        while waiting or running:
            while waiting and len(running) < self._n_processes:
                mutant = waiting.pop()
                earlier = before.get(mutant.key, "").removeprefix(_ENDED)
                among = {
                    name: durations[name]
                    for name in chosen[mutant.module]
                    if name in durations
                }
                tests, again = self._tests(mutant, entered, among, first=earlier)
                output = self._folder / str(len(waiting))
                running[self._fork(mutant, tests, again, durations, output)] = (
                    mutant,
                    output,
                )
            pid, _ = os.wait()
            with suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)  # what its tests started
            mutant, output = running.pop(pid)
            outcome, n_done = output.read_text(), n_done + 1
            if outcome == _ENDED:  # before its first test, which shows nothing
                outcome = SURVIVED
            self.outcomes[mutant.key] = outcome
            self._note(mutant.key, outcome)
            if outcome != SURVIVED or distance == _DISTANCES[-1]:
                self._progress.write(
                    json.dumps([mutant.key, outcome, _basis(mutant, outcome)]) + "\n"
                )
                self._progress.flush()
            if outcome.startswith((SURVIVED, _ENDED)) or n_done % 50 == 0:
                print(
                    f"{time.monotonic() - began:5.0f} s {n_done:5} {outcome}: {mutant.key}",
                    flush=True,
                )

    def _note(self, key: str, outcome: str) -> None:
        """Counts what a test noticed in a scope, and in its module."""
        scope = key.partition(" | ")[0]
        for place in (scope, scope.partition(":")[0]):
            self._noticed[place][outcome.removeprefix(_ENDED)] += 1

    def _chosen(self, module: str, distance: str) -> list[str]:
        return [
            name
            for name, item in self._items.items()
            if _distance(item.path, module) == distance
        ]

    def _tests(
        self,
        mutant: Mutant,
        entered: dict[str, Lines],
        durations: dict[str, float],
        *,
        first: str,
    ) -> tuple[list[str], list[str]]:
        """The tests of a mutant, and those that run again with fixtures of their own."""
        lines, in_module = mutant.lines, self._noticed[mutant.module]
        in_scope = self._noticed[f"{mutant.module}:{mutant.scope}"]
        is_function = _code_of(mutant) in self._functions
        places = (
            {mutant.module: lines}
            if is_function
            else dict.fromkeys(_readers(mutant), -1)
        )
        enter = {name for name in durations if _meets(entered[name], places)}
        words = _words(mutant.key)
        worth = {
            name: 1
            + in_module[name]
            + _WORTH_OF_SCOPE * in_scope[name]
            + _WORTH_OF_WORD * len(_words(name) & words)
            for name in enter
        }
        prices = {name: durations[name] / worth[name] for name in enter}
        by_time = _different_first(
            prices, {name: entered[name].get(mutant.module, 0) for name in enter}
        )
        by_time.sort(key=lambda name: name != first)
        fixtures = {
            name
            for name, entered in self._shared.items()
            if not self._is_near and _meets(entered, places)
        }
        again = sorted(
            (name for name in durations if self._shared_by.get(name, set()) & fixtures),
            key=durations.__getitem__,
        )
        return self._short(by_time, durations), self._short(again, durations)

    def _short(self, names: Sequence[str], durations: Mapping[str, float]) -> list[str]:
        """The first tests that take no longer together than a mutant may meet, and one
        of them in any case.
        """
        until = accumulate(durations[name] for name in names)
        return [
            name
            for name, total in zip(names, until, strict=True)
            if total <= self._seconds or name == names[0]
        ]

    def _traced(
        self, names: Sequence[str]
    ) -> tuple[dict[str, Lines], dict[str, float]]:
        """For each test, the lines that it enters, and its duration."""
        kept = pickle.loads(TRACES.read_bytes()) if TRACES.exists() else {}
        kept = {
            name: trace
            for name, trace in kept.items()
            if name not in self._items or trace[0] == self._text(name, trace[2])
        }
        unknown = [name for name in names if name not in kept]
        for begin in range(0, len(unknown), _TRACED_TOGETHER):
            pids, outputs = (
                list[int](),
                [
                    self._folder / f"traced.{share}"
                    for share in range(self._n_processes)
                ],
            )
            for share, output in enumerate(outputs):
                pids.append(os.fork())
                if pids[-1] == 0:
                    self._trace(
                        unknown[begin : begin + _TRACED_TOGETHER][
                            share :: self._n_processes
                        ],
                        output,
                    )
            for pid in pids:
                os.waitpid(pid, 0)
            for output in outputs:
                for name, (duration, entered, shared) in pickle.loads(
                    output.read_bytes()
                ).items():
                    kept[name] = (self._text(name, entered), duration, entered, shared)
                    if shared is None:
                        del kept[name]
                        self.failing.append(name)
            TRACES.write_bytes(pickle.dumps(kept))
            print(
                f"{min(begin + _TRACED_TOGETHER, len(unknown))} of {len(unknown)} tests traced",
                flush=True,
            )
        names = [name for name in names if name in kept]
        self._shared_by |= {name: kept[name][3] for name in names}
        return {name: kept[name][2] for name in names}, {
            name: kept[name][1] for name in names
        }

    def _text(self, name: str, entered: Lines) -> str:
        """A digest of a test's file and of the files that it entered."""
        paths = [self._items[name].path, *map(file_of, sorted(entered))]
        texts = "".join(_digest((path,)) for path in paths if path.exists())
        return hashlib.sha256(texts.encode()).hexdigest()[:16]

    def _trace(self, names: list[str], output: Path) -> None:
        _quiet()
        traces = dict[str, tuple[float, Lines, set[str] | None]]()
        marks = MarkedLines(self._functions)
        for name in names:
            self._forget_results()
            began = _unhindered()
            with marks.entered() as entered:
                self._run_item(name)
            shared = None if self._failed else self._shared_by.get(name, set())
            traces[name], self._failed = (_unhindered() - began, entered, shared), False
        output.write_bytes(pickle.dumps(traces))
        os._exit(0)

    def _forget_results(self) -> None:
        for clear in self._caches:
            clear()

    def _fork(
        self,
        mutant: Mutant,
        tests: list[str],
        again: list[str],
        durations: dict[str, float],
        output: Path,
    ) -> int:
        pid = os.fork()
        if pid:
            return pid
        outcome = _ENDED
        try:
            gc.disable()
            os.setpgid(0, 0)
            _quiet()
            for number in (signal.SIGALRM, signal.SIGPROF):
                signal.signal(number, signal.SIG_DFL)  # ends the fork
            outcome = self._outcome(mutant, tests, again, durations, output)
        finally:
            output.write_text(outcome)
            os._exit(0)

    def _outcome(
        self,
        mutant: Mutant,
        tests: list[str],
        again: list[str],
        durations: dict[str, float],
        output: Path,
    ) -> str:
        """The test that notices a mutant; ``import`` if its module cannot be imported."""
        if not _apply(mutant, self._functions):
            return "import"
        for is_again, names in enumerate((tests, again)):
            if is_again and names:
                self._items[names[0]].session._setupstate.teardown_exact(None)
            for name in names:
                output.write_text(_ENDED + name)
                signal.alarm(int(_slowness() * (_WAIT_S + 3 * durations[name])))
                signal.setitimer(signal.ITIMER_PROF, _LIMIT_S + 3 * durations[name])
                self._run_item(name)
                if self._failed:
                    return name
        return SURVIVED

    def _run_item(self, name: str) -> None:
        # which pytest loads first, so that it can rewrite its assertions
        from tests.support import chance

        item = self._items[name]
        item.config.stash[chance._KEYS]._process_id = os.getpid()
        # As if the session came next, so that what was made for it stays.
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=item.session)


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _caches() -> list[Callable[[], None]]:
    """What empties the caches of functions of the application."""
    return [
        clear
        for module in list(sys.modules.values())
        if getattr(module, "__name__", "").startswith(PRODUCT)
        for value in list(vars(module).values())
        for member in (
            value,
            *(vars(value).values() if isinstance(value, type) else ()),
        )
        if (clear := getattr(member, "cache_clear", None)) is not None
    ]


def _unhindered() -> float:
    """A clock that stands while the main thread waits for a processor: other processes
    of a busy machine make no test longer.
    """
    waited = Path("/proc/self/schedstat")
    ns = int(waited.read_text().split()[1]) if waited.exists() else 0
    return time.perf_counter() - ns / 1e9


def _slowness() -> float:
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def _meets(entered: Lines, places: Lines) -> bool:
    return any(entered.get(module, 0) & lines for module, lines in places.items())


@cache
def _words(text: str) -> frozenset[str]:
    """The beginnings of the words of a text, so that *populations* are a *population*."""
    return frozenset(word[:6] for word in re.findall("[a-z]{4,}", text.lower())) - {
        "tests",
        "pure",
        "databa",
        "ledger",
    }


def _different_first(
    prices: Mapping[str, float], lines: Mapping[str, int]
) -> list[str]:
    """Tests by their prices, where the second of the same lines costs twice as much,
    the third three times, and so on.

    Tests of the same lines often notice the same.
    """
    n_before, dearer = Counter[int](), dict[str, float]()
    for name in sorted(prices, key=prices.__getitem__):
        n_before[lines[name]] += 1
        dearer[name] = prices[name] * n_before[lines[name]]
    return sorted(dearer, key=dearer.__getitem__)


def _distance(path: Path, module: str) -> str:
    """How far a file of tests is from a module: one of ``_DISTANCES``."""
    near, middle, far = _DISTANCES
    if module in _imported(path):
        return near
    return middle if module in _imported_in_all(path) else far


@cache
def _imported(path: Path) -> frozenset[str]:
    """The names that a file imports, with their modules."""
    names = set[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(f"{node.module}")
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(names)


@cache
def _imported_in_all(path: Path) -> frozenset[str]:
    """The same of a file of tests, of what it imports of the tests, and of the fixtures
    above it.
    """
    above = [folder for folder in path.parents if ROOT in folder.parents]
    files, seen = [path, *(folder / "conftest.py" for folder in above)], set[Path]()
    while files:
        file = files.pop()
        if file not in seen and file.exists():
            seen.add(file)
            names = _imported(file)
            files += [file_of(name) for name in names if name.startswith("tests.")]
    return frozenset().union(*map(_imported, seen))


@cache
def _digest(paths: tuple[Path, ...]) -> str:
    texts = b"".join(path.read_bytes() for path in paths)
    return hashlib.sha256(texts).hexdigest()[:16]


def _basis(mutant: Mutant, outcome: str) -> str:
    """A digest of what an outcome follows from: of all texts for a survivor, else of
    the statements of the module, of the test, and of what its file names for it.
    """
    if outcome == SURVIVED:
        folders = ("app", "clients", "packages", "tests")
        return _digest(
            tuple(
                sorted(path for name in folders for path in (ROOT / name).rglob("*.py"))
            )
        )
    file, _, test = outcome.removeprefix(_ENDED).partition("::")
    statements = _statements(file_of(mutant.module))
    if (ROOT / file).is_file():
        statements += _statements(ROOT / file, of_test=test.partition("[")[0])
    return hashlib.sha256(statements.encode()).hexdigest()[:16]


def _statements(path: Path, *, of_test: str = "") -> str:
    """The text of a file without comments and docstrings, or that of one of its tests
    with what it names, and what that names.
    """
    statements = _named_statements(path)
    if not of_test:
        return "\n".join(text for _, text in statements)
    words, before = {of_test, "pytestmark", "autouse"}, 0
    while len(words) > before:
        before = len(words)
        read = [text for names, text in statements if not names or names & words]
        words.update(*map(_identifiers, read))
    return "\n".join(read)


@cache
def _named_statements(path: Path) -> list[tuple[frozenset[str], str]]:
    """The statements of a file, each with the names that it binds; those of imports
    one by one.
    """
    tree, statements = ast.parse(path.read_text()), list[tuple[frozenset[str], str]]()
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and isinstance(body[0], ast.Expr):
            value = body[0].value
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                body[0] = ast.Pass()
    for node in tree.body:
        text, names = ast.unparse(node), set[str]()
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                name = alias.asname or alias.name
                source = f"{getattr(node, 'module', '')}:{alias.name} {name}"
                statements.append((frozenset({name.partition(".")[0]}), source))
            continue
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names = {node.name} | _identifiers(text) & {"autouse"}
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            names = set().union(*map(_identifiers, map(ast.unparse, _targets(node))))
        statements.append((frozenset(names), text))
    return statements


@cache
def _identifiers(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


def _code_of(mutant: Mutant) -> tuple[str, str]:
    return str(file_of(mutant.module)), mutant.scope


def _apply(mutant: Mutant, functions: Functions) -> bool:
    """Changes one of the functions of this process, or a constant wherever it was
    imported.

    What other constants were computed from it at import stays; they are changed on
    their own.

    Returns:
        Whether the module can be imported with the change.
    """
    tree, path = tree_of(mutant), str(file_of(mutant.module))
    changed = codes_of(tree, path)
    for function in functions.get(_code_of(mutant), []):
        code = function.__code__
        function.__code__ = changed[(code.co_qualname, code.co_firstlineno)]
    if _code_of(mutant) in functions:
        return True
    module = sys.modules[mutant.module]
    [statement] = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign)
        and mutant.scope in {ast.unparse(t) for t in _targets(node)}
    ]
    assert statement.value is not None
    try:
        value = eval(
            compile(ast.Expression(statement.value), path, "eval"), dict(vars(module))
        )
    except (ArithmeticError, LookupError, TypeError, ValueError, SQLAlchemyError):
        return False
    old = vars(module)[mutant.scope]
    for other in list(sys.modules.values()):
        if (
            getattr(other, "__name__", "").startswith((*PRODUCT, "tests."))
            and vars(other).get(mutant.scope) is old
        ):
            setattr(other, mutant.scope, value)
    return True


def _readers(mutant: Mutant) -> list[str]:
    """The module of a constant, and the modules that import it."""
    loaded = {
        name: vars(module)
        for name, module in list(sys.modules.items())
        if name.startswith(PRODUCT)
    }
    value = loaded.get(mutant.module, {}).get(mutant.scope)
    return [
        mutant.module,
        *(
            name
            for name, own in loaded.items()
            if own.get(mutant.scope) is value is not None
        ),
    ]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _earlier() -> dict[str, str]:
    """The last outcome of each mutant of earlier runs."""
    return {key: outcome for key, outcome, _ in _lines()}


def keep() -> None:
    """Writes which mutants of today's code today's tests noticed."""
    mutants = [mutant for module in modules() for mutant in mutants_of(module)]
    judged = _judged(mutants)
    lines = [
        json.dumps([mutant.key, outcome, _basis(mutant, outcome)])
        for mutant in mutants
        if (outcome := judged.get(mutant.key, SURVIVED)) != SURVIVED
    ]
    NOTICED.write_bytes(lzma.compress("\n".join(lines).encode()))
    print(f"{len(lines)} of {len(mutants)} mutants are kept as noticed")


def _judged(mutants: Sequence[Mutant]) -> dict[str, str]:
    """Outcomes of earlier runs from texts that are as they were."""
    by_key = {mutant.key: mutant for mutant in mutants}
    return {
        key: outcome
        for key, outcome, basis in _lines()
        if key in by_key and basis == _basis(by_key[key], outcome)
    }


def _lines() -> list[tuple[str, str, str]]:
    kept = lzma.decompress(NOTICED.read_bytes()).decode() if NOTICED.exists() else ""
    here = PROGRESS.read_text() if PROGRESS.exists() else ""
    return [
        (key, outcome, basis)
        for text in (kept, here)
        for key, outcome, basis in map(json.loads, text.splitlines())
        # of earlier versions, which counted such a fork
        if outcome != _ENDED
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
