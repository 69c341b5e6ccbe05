"""Makes careless changes in the mechanisms one by one and runs the tests that must notice them.

``python -m tests.privacy.mutants [MODULE …]`` collects the tests of ``FOLDERS``, notes which functions each of them
enters, and changes the code of a fork of this process for each mutant; the working tree stays as it is. In the fork
the tests that enter the changed function run until one fails, first the fast ones and those that noticed other mutants
of the module. The command prints every mutant that no test notices, and fails if one of them is not in the list of
``WITHOUT_EFFECT`` with a reason, or if the list names a mutant that is not made any more.
"""

from __future__ import annotations

import ast
import gc
import hashlib
import json
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final

import pytest

from tests.privacy.mutations import ROOT, Mutant, file_of, modules, mutants_of, tree_of

FOLDERS: Final = (
    "tests/privacy",
    "tests/property",
    "tests/unit/datasets",
    "tests/unit/forests",
    "tests/unit/jobs",
    "tests/unit/ledger",
    "tests/unit/privacy",
    "tests/unit/services/releases",
    "tests/unit/verifier/test_verifier_conversions.py",
    "tests/contract/test_accountants.py",
    "tests/contract/test_account_calls.py",
    "tests/contract/test_approvals.py",
    "tests/contract/test_boxes_of_jobs.py",
    "tests/contract/test_caps.py",
    "tests/contract/test_cluster_of_jobs.py",
    "tests/contract/test_deletion_of_queues.py",
    "tests/contract/test_delta_set_aside.py",
    "tests/contract/test_erased_names.py",
    "tests/contract/test_external_charges.py",
    "tests/contract/test_job_balances.py",
    "tests/contract/test_job_kinds.py",
    "tests/contract/test_ledger.py",
    "tests/contract/test_ledger_boxes.py",
    "tests/contract/test_ledger_units.py",
    "tests/contract/test_limits_of_one_job.py",
    "tests/contract/test_lists.py",
    "tests/contract/test_paid_jobs.py",
    "tests/contract/test_plan_prices.py",
    "tests/contract/test_population_chains.py",
    "tests/contract/test_population_members.py",
    "tests/contract/test_populations.py",
    "tests/contract/test_queue.py",
    "tests/contract/test_queue_expiry.py",
    "tests/contract/test_queue_order.py",
    "tests/contract/test_queue_settling.py",
    "tests/contract/test_queue_supervisor.py",
    "tests/contract/test_queue_tidy_rows.py",
    "tests/contract/test_queue_turns.py",
    "tests/contract/test_rules.py",
    "tests/contract/test_states.py",
    "tests/contract/test_tampered_rows.py",
    "tests/contract/test_two_accounts.py",
    "tests/contract/test_upload_erasure.py",
)
WITHOUT_EFFECT: Final = Path(__file__).with_name("mutants_without_effect.json")
"""Reasons, each with the keys of the mutants that no test notices because of it."""

PROGRESS: Final = ROOT / ".pytest_cache" / "mutants.jsonl"
"""Outcome of every mutant of the last runs: the test that noticed it then is the first one that runs."""

TRACES: Final = PROGRESS.with_name("mutants_tests.pickle")
"""The functions that each test entered, and the time that it took, for the present code and text of the test."""

_WORKERS: Final = 2
_TRACED_TOGETHER: Final = 100
_LIMIT_S: Final = 15.0
"""Time of a test of a mutant beyond three times what it takes without a change. An endless loop counts as noticed."""

_MOST_TESTS_S: Final = 120.0
"""Time of the tests, without a change, that run at most on one mutant."""


def main(names: Sequence[str]) -> int:
    """Runs the mutants of modules, or of all modules; returns the exit status."""
    mutants = [mutant for module in names or modules() for mutant in mutants_of(module)]
    return run(mutants, FOLDERS, is_complete=not names)


def run(mutants: Sequence[Mutant], folders: Sequence[str], *, is_complete: bool) -> int:
    """Runs mutants against the tests of folders; returns 1 where one survives without a reason, else 0."""
    reasons = {key: group["reason"] for group in json.loads(WITHOUT_EFFECT.read_text()) for key in group["mutants"]}
    server = _Server([mutant for mutant in mutants if mutant.key not in reasons])
    options = ["-q", "-s", "--tb=no", "-p", "no:cacheprovider", "-o", "timeout=0", "-o", "addopts="]
    chosen = ["--strict-markers", "--import-mode=importlib", "-m", "not long", "-k", "not postgresql"]
    if pytest.main([*options, *chosen, *(str(ROOT / folder) for folder in folders)], plugins=[server]):
        return 2
    survivors = [mutant.key for mutant in server.mutants if server.outcomes.get(mutant.key, "survived") == "survived"]
    stale = reasons.keys() - {mutant.key for mutant in mutants} if is_complete else set()
    for key in survivors:
        print("SURVIVED", key)
    for key in sorted(stale):
        print("NOT MADE ANY MORE", key)
    n_listed = len(mutants) - len(server.mutants)
    print(f"{len(mutants)} mutants: {len(server.outcomes) - len(survivors)} noticed, {n_listed} listed and not run")
    return 1 if survivors or stale else 0


class _Server:
    """A plugin of pytest that forks a process for each mutant in place of running the tests."""

    def __init__(self, mutants: Sequence[Mutant]) -> None:
        self.mutants, self.outcomes = mutants, dict[str, str]()
        self._noticed = defaultdict[str, Counter[str]](Counter)
        self._failed = False

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self) -> None:
        """The first example that shows a mutant will do: no search for a smaller one."""
        from hypothesis import Phase, settings  # which pytest loads first, so that it can rewrite its assertions

        usual = settings.get_profile("repeatable")
        settings.register_profile("mutants", usual, phases=(Phase.explicit, Phase.generate))
        settings.load_profile("mutants")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._failed = self._failed or report.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        assert not session.testsfailed, "tests that cannot be collected"
        self._items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # frozen objects are not listed
        self._functions = [value for value in gc.get_objects() if isinstance(value, FunctionType)]
        gc.freeze()  # so that forks share their memory
        with tempfile.TemporaryDirectory() as folder:
            self._folder = Path(folder)
            self._run()
        return True

    def _run(self) -> None:
        began, before = time.monotonic(), _earlier()
        entered, durations = self._traced()
        print(f"{len(self._items)} tests without a change: {sum(durations.values()):.0f} s", flush=True)
        PROGRESS.parent.mkdir(exist_ok=True)
        waiting, running = list(reversed(self.mutants)), dict[int, tuple[Mutant, Path]]()
        with PROGRESS.open("a") as progress:
            while waiting or running:
                while waiting and len(running) < _WORKERS:
                    mutant = waiting.pop()
                    tests = self._tests(mutant, entered, durations, first=before.get(mutant.key))
                    output = self._folder / str(len(waiting))
                    running[self._fork(mutant, tests, durations, output)] = (mutant, output)
                pid, _ = os.wait()
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what its tests started
                mutant, output = running.pop(pid)
                outcome = output.read_text() if output.exists() else "time is up"
                self.outcomes[mutant.key] = outcome
                self._noticed[mutant.module][outcome] += 1
                progress.write(json.dumps([mutant.key, outcome]) + "\n")
                progress.flush()
                if outcome == "survived" or len(self.outcomes) % 50 == 0:
                    print(
                        f"{time.monotonic() - began:5.0f} s {len(self.outcomes):5} {outcome}: {mutant.key}", flush=True
                    )

    def _tests(
        self, mutant: Mutant, entered: dict[str, set[str]], durations: dict[str, float], *, first: str | None
    ) -> list[str]:
        enter = entered[f"{mutant.module}:{mutant.scope}"] or set().union(*(entered[name] for name in _readers(mutant)))
        noticed = self._noticed[mutant.module]
        names = sorted(enter, key=lambda name: (name != first, durations[name] / (1 + noticed[name])))
        total, chosen = 0.0, list[str]()
        for name in names:
            total += durations[name]
            if total > _MOST_TESTS_S and chosen:
                break
            chosen.append(name)
        return chosen

    def _traced(self) -> tuple[dict[str, set[str]], dict[str, float]]:
        """For each function and module, the tests that enter it; and the duration of each test."""
        kept = pickle.loads(TRACES.read_bytes()) if TRACES.exists() else {}
        application = _digest(sorted((ROOT / "app").rglob("*.py")))
        digests = {item.path: application + _digest([item.path]) for item in self._items.values()}
        kept = {name: trace for name, trace in kept.items() if name not in self._items or trace[0] in digests.values()}
        unknown = [name for name in self._items if name not in kept]
        TRACES.parent.mkdir(exist_ok=True)
        for begin in range(0, len(unknown), _TRACED_TOGETHER):
            pids, outputs = list[int](), [self._folder / f"traced.{share}" for share in range(_WORKERS)]
            for share, output in enumerate(outputs):
                pids.append(os.fork())
                if pids[-1] == 0:
                    self._trace(unknown[begin : begin + _TRACED_TOGETHER][share::_WORKERS], output)
            for pid, output in zip(pids, outputs, strict=True):
                if os.waitpid(pid, 0)[1]:
                    raise pytest.UsageError(f"a test fails without a change: {output.read_bytes()!r}")
            for output in outputs:
                for name, (duration, entered) in pickle.loads(output.read_bytes()).items():
                    kept[name] = (digests[self._items[name].path], duration, entered)
            TRACES.write_bytes(pickle.dumps(kept))
        tests = defaultdict[str, set[str]](set)
        for name in self._items:
            for scope in kept[name][2]:
                tests[scope].add(name)
                tests[scope.partition(":")[0]].add(name)
        return tests, {name: kept[name][1] for name in self._items}

    def _trace(self, names: list[str], output: Path) -> None:
        _quiet()
        traces, calls, above = dict[str, tuple[float, set[str]]](), set[CodeType](), f"{ROOT}/app/"

        def note(frame: Any, _event: str, _argument: object) -> None:
            calls.add(frame.f_code)

        for name in names:
            _forget_results()
            calls.clear()
            began = time.perf_counter()
            sys.settrace(note)
            threading.settrace(note)
            self._run_item(name)
            sys.settrace(None)
            entered = {
                f"{code.co_filename[len(str(ROOT)) + 1 : -3].replace('/', '.')}:{_outer(code)}"
                for code in calls
                if code.co_filename.startswith(above)
            }
            traces[name] = (time.perf_counter() - began, entered)
            if self._failed:
                output.write_bytes(pickle.dumps(name))
                os._exit(1)
        output.write_bytes(pickle.dumps(traces))
        os._exit(0)

    def _fork(self, mutant: Mutant, tests: list[str], durations: dict[str, float], output: Path) -> int:
        pid = os.fork()
        if pid:
            return pid
        outcome = "survived"
        try:
            gc.disable()
            os.setpgid(0, 0)
            _quiet()
            signal.signal(signal.SIGALRM, signal.SIG_DFL)  # ends the fork
            _forget_results()
            is_imported = _apply(mutant, self._functions)
            for test in tests if is_imported else []:
                signal.alarm(int(_LIMIT_S + 3 * durations[test]))
                self._run_item(test)
                if self._failed:
                    outcome = test
                    break
            outcome = outcome if is_imported else "import"
        finally:
            output.write_text(outcome)
            os._exit(0)

    def _run_item(self, name: str) -> None:
        from tests.support import chance  # which pytest loads first, so that it can rewrite its assertions

        item = self._items[name]
        item.config.stash[chance._KEYS]._process_id = os.getpid()
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=None)


def _quiet() -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)


def _forget_results() -> None:
    """Empties the caches of functions of the application."""
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("app."):
            for value in list(vars(module).values()):
                for member in [value, *(vars(value).values() if isinstance(value, type) else ())]:
                    clear = getattr(member, "cache_clear", None)
                    if clear is not None:
                        clear()


def _digest(paths: Sequence[Path]) -> str:
    return hashlib.sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _outer(code: CodeType) -> str:
    """The scope of a function, without the functions inside it."""
    return code.co_qualname.partition(".<locals>")[0]


def _codes(code: CodeType) -> list[CodeType]:
    return [code, *(inner for const in code.co_consts if isinstance(const, CodeType) for inner in _codes(const))]


def _apply(mutant: Mutant, functions: Sequence[FunctionType]) -> bool:
    """Changes one of the functions of this process, or a constant wherever it was imported.

    What other constants were computed from it at import stays; they are changed on their own.

    Returns:
        Whether the module can be imported with the change.
    """
    tree, path = tree_of(mutant), str(file_of(mutant.module))
    changed = {(code.co_qualname, code.co_firstlineno): code for code in _codes(compile(tree, path, "exec"))}
    is_function = False
    for function in functions:
        code = function.__code__
        if code.co_filename == path and code.co_qualname == mutant.scope:
            function.__code__ = changed[(code.co_qualname, code.co_firstlineno)]
            is_function = True
    if is_function:
        return True
    module = sys.modules[mutant.module]
    [statement] = [
        node
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and mutant.scope in {ast.unparse(t) for t in _targets(node)}
    ]
    assert statement.value is not None
    try:
        value = eval(compile(ast.Expression(statement.value), path, "eval"), dict(vars(module)))
    except (ArithmeticError, LookupError, TypeError, ValueError):
        return False
    old = vars(module)[mutant.scope]
    for other in list(sys.modules.values()):
        if getattr(other, "__name__", "").startswith(("app.", "tests.")) and vars(other).get(mutant.scope) is old:
            setattr(other, mutant.scope, value)
    return True


def _readers(mutant: Mutant) -> list[str]:
    """The module of a constant, and the modules that import it."""
    loaded = {name: vars(module) for name, module in list(sys.modules.items()) if name.startswith("app.")}
    value = loaded.get(mutant.module, {}).get(mutant.scope)
    return [mutant.module, *(name for name, own in loaded.items() if own.get(mutant.scope) is value is not None)]


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else [node.target]


def _earlier() -> dict[str, str]:
    if not PROGRESS.exists():
        return {}
    return dict(json.loads(line) for line in PROGRESS.read_text().splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
