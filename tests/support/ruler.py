"""Measures what a reader of the code has to hold in mind: ``python -m
tests.support.ruler``.

The command prints one table: the functions, modules and code tokens that each way of
the service enters, and the size and the density of the service and of the tests.
``tests/architecture/test_ways.py`` holds the numbers.
"""

import ast
import gc
import io
import json
import sys
import tempfile
import threading
import tokenize
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any
from unittest.mock import patch

from app.api.main import create_app
from app.api.middleware import Application
from app.cli.serve import server_config
from app.core import limits
from app.core.settings import Settings
from app.db import migrate
from app.db.database import Database
from app.services.drawing.perform import perform
from app.services.execution import run_job
from app.services.keys import create_admin
from tests.support.in_process import InProcess, in_process
from tests.support.job_kinds import run_here
from tests.support.server import (
    CSV,
    csv_rows,
    declaration,
    new_idempotency_key,
    training,
)

ROOT = Path(__file__).parents[2]
APP = ROOT / "app"
PACKAGES = ROOT / "packages"
_CLIENT = ROOT / "clients" / "python"
COMMON = _CLIENT / "grovekeeper_common"
CODE = (APP, _CLIENT / "grovekeeper_client" / "cli", COMMON, PACKAGES)
"""The program without its client library."""

SERVICE = (APP, COMMON, PACKAGES / "forests" / "grovekeeper_forests")
"""What the ways of the service enter."""

TESTS = ROOT / "tests"
_GENERATED = TESTS / "support" / "checked_ledger.py"
"""Written by a program, and read by nobody."""

_DENSE = 20
"""A line with more code tokens is dense."""

_NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
_FOR_TOOLS = ("# type:", "# noqa", "# fmt:", "# pragma")
_COMPREHENSIONS = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(frozen=True)
class Way:
    """What one way through the service enters."""

    codes: frozenset[CodeType]

    @property
    def modules(self) -> list[str]:
        """Modules by their path."""
        return sorted(
            {code.co_filename.removeprefix(f"{ROOT}/") for code in self.codes}
        )

    @property
    def functions(self) -> list[str]:
        """Functions and methods, without lambdas, comprehensions and bodies of classes."""
        return sorted(
            f"{code.co_filename}:{code.co_qualname}"
            for code in self.codes
            if _is_function(code)
        )

    @property
    def n_tokens(self) -> int:
        """Code tokens in the bodies of the functions."""
        return sum(
            _tokens_of_functions(code.co_filename)[code.co_firstlineno]
            for code in self.codes
            if _is_function(code)
        )


def _is_function(code: CodeType) -> bool:
    return not code.co_name.startswith(
        "<"
    ) and code.co_firstlineno in _tokens_of_functions(code.co_filename)


@cache
def _tokens_of_functions(file: str) -> dict[int, int]:
    """Code tokens of each function of a file, by its first line. Those of an inner
    function count in both.
    """
    text = Path(file).read_text(encoding="utf-8")
    tree = ast.parse(text)
    lines = [line for line, _ in _code_tokens(text, tree)]
    numbers = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min(part.lineno for part in (node, *node.decorator_list))
            numbers[first] = sum(
                first <= line <= (node.end_lineno or first) for line in lines
            )
    return numbers


@lru_cache(maxsize=1)
def _tokens(text: str) -> list[tokenize.TokenInfo]:
    """The tokens of a module, which take longer to find than everything that is
    counted.
    """
    return list(tokenize.generate_tokens(io.StringIO(text).readline))


def _code_tokens(text: str, tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and text of each token, without comments, docstrings and the layout of
    lines.
    """
    texts = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and _is_text(node.value)
    )
    docstrings = {(node.lineno, node.col_offset) for node in texts}
    for token in _tokens(text):
        if token.type not in _NO_CODE and token.start not in docstrings:
            yield token.start[0], token.string


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


class _Recorder:
    """Records the functions of the service and of the forests that a block calls, on
    all threads of this process.
    """

    def __init__(self) -> None:
        self._folders = tuple(f"{folder}/" for folder in SERVICE)
        self._entered: set[CodeType] | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        entered, code = self._entered, frame.f_code
        if (
            entered is not None
            and event == "call"
            and code.co_filename.startswith(self._folders)
        ):
            entered.add(code)

    def way(self, work: Callable[[], object]) -> Way:
        """What the work enters."""
        self._entered = entered = set[CodeType]()
        try:
            work()
        finally:
            self._entered = None
        return Way(frozenset(entered))

    def shortest(self, work: Callable[[], object]) -> Way:
        """The repetition that enters the fewest functions: caches expire, and threads
        open connections.
        """
        work()
        return min((self.way(work) for _ in range(3)), key=lambda way: len(way.codes))


@contextmanager
def _recording() -> Iterator[_Recorder]:
    """A recorder of this thread and of all threads that start in the block."""
    recorder = _Recorder()
    earlier = sys.getprofile(), threading.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(earlier[0])
        threading.setprofile(earlier[1])


class _Service:
    """An application without background threads, and a worker, both in this process."""

    def __init__(self, client: InProcess, app: Application, key: str) -> None:
        self._client, self._installation, self._key = (
            client,
            app.state.installation,
            key,
        )
        self._config = server_config(app)
        self._config.load()
        self.dataset = self.model = ""

    @classmethod
    @contextmanager
    def running(cls, settings: Settings, key: str) -> Iterator["_Service"]:
        """A service that has answered one request."""
        app = create_app(settings)
        try:
            with in_process(app) as client:
                service = cls(client, app, key)
                service._sent("GET", "/datasets")
                yield service
        finally:
            app.state.installation.close()

    def declare(self) -> None:
        self.dataset = str(self._sent("POST", "/datasets", json=declaration())["id"])
        self._sent(
            "POST", f"/datasets/{self.dataset}/rows", content=csv_rows(200), headers=CSV
        )

    def train(self) -> None:
        self._sent("POST", "/train", json=training(self.dataset, algorithm="mrf"))

    def work(self) -> None:
        claim = run_job.claim_next(self._installation)
        assert claim is not None
        run_here(
            self._installation,
            claim,
            lambda task, _: perform(task, on_tree_done=lambda: None),
        )

    def evaluate(self) -> None:
        self.model = self.model or str(self._sent("GET", "/models")["models"][0]["id"])
        self._sent("POST", f"/models/{self.model}/evaluations", json={"epsilon": "1"})

    def show_ledger(self) -> None:
        self._sent("GET", f"/ledger/{self.dataset}")

    def predict(self) -> None:
        """Predicts by way of the server's protocol, which answers small predictions."""
        body = json.dumps(
            {
                "columns": {
                    "age": [30, 60],
                    "height": [1.5, 1.6],
                    "sex": ["Female", "Male"],
                }
            }
        )
        head = f"POST /models/{self.model}/predict HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {self._key}\r\n"
        answer = self._client.exchanged(
            self._config, f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode()
        )
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    def _sent(
        self, method: str, path: str, *, headers: Any = None, **options: Any
    ) -> Any:
        headers = {
            **(headers or {}),
            **({} if method == "GET" else new_idempotency_key()),
        }
        answer = self._client.request(
            method, path, key=self._key, headers=headers, **options
        )
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()


def ways(settings: Settings) -> dict[str, Way]:
    """What each way enters when this process has taken it before, on a migrated, empty
    database.
    """
    gc.collect()
    with closing(Database.open(settings.database_url)) as database:
        key = create_admin(database, "test").text
    with _recording() as recorder:
        with _Service.running(settings, key) as service:
            service.declare()
            entered = {
                "POST /train": recorder.shortest(service.train),
                "a job": recorder.shortest(service.work),
                "GET /ledger/{id}": recorder.shortest(service.show_ledger),
                "POST /models/{id}/evaluations": recorder.shortest(service.evaluate),
            }
            # what predictions have read stays valid
            with patch.object(limits, "REVOCATION_S", 3_600):
                entered["POST /models/{id}/predict, warm"] = recorder.shortest(
                    service.predict
                )
            model = service.model
        with _Service.running(settings, key) as service:
            service.model = model
            entered["POST /models/{id}/predict, cold"] = recorder.way(service.predict)
    return entered


@dataclass(frozen=True)
class Size:
    """Size and density of the code of a folder."""

    tokens: int
    code_lines: int
    dense_lines: int
    comprehensions: int
    ternaries: int
    comments: int
    patches: int

    def per_thousand_lines(self, number: int) -> float:
        """A number per thousand lines of code."""
        return 1_000 * number / self.code_lines


@cache
def size(*folders: Path) -> Size:
    """The size of all modules below folders that somebody writes; comments of
    ``limits.py``, which has one for each limit, are left out.
    """
    paths = {path for folder in folders for path in folder.rglob("*.py")}
    sizes = [_size_of(path) for path in sorted(paths - {_GENERATED})]
    return Size(*(sum(column) for column in zip(*sizes, strict=True)))


@cache  # of the forests for the service and for all that is shipped
def _size_of(path: Path) -> tuple[int, ...]:
    text = path.read_text(encoding="utf-8")
    tree = ast.parse(text)
    by_line: dict[int, int] = {}
    for line, _ in _code_tokens(text, tree):
        by_line[line] = by_line.get(line, 0) + 1
    nodes = list(ast.walk(tree))
    return (
        sum(by_line.values()),
        len(by_line),
        sum(number > _DENSE for number in by_line.values()),
        sum(isinstance(node, _COMPREHENSIONS) for node in nodes),
        sum(isinstance(node, ast.IfExp) for node in nodes),
        0 if path.name == "limits.py" else _n_comments(text),
        sum(_is_patch(node) for node in nodes),
    )


def _n_comments(text: str) -> int:
    comments = (token for token in _tokens(text) if token.type == tokenize.COMMENT)
    return sum(not token.string.startswith(_FOR_TOOLS) for token in comments)


def _is_patch(node: ast.AST) -> bool:
    """Whether a test replaces an attribute: ``….setattr(…)`` or ``patch.object(…)``."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("setattr", "object")
    )


def main() -> None:
    """Prints the table."""
    with tempfile.TemporaryDirectory() as temporary:
        settings = Settings(
            home=Path(temporary, "home"),
            database_url=f"sqlite:///{temporary}/ruler.sqlite3",
        )
        migrate.upgrade(settings.database_url)
        for name, way in ways(settings).items():
            print(
                f"{name}: {len(way.functions)} functions, {way.n_tokens} tokens, {len(way.modules)} modules"
            )
    for name, folders in (
        ("the service and the forests", SERVICE),
        ("tests", (TESTS,)),
    ):
        measured = size(*folders)
        print(
            f"{name}: {measured.tokens} tokens, {measured.tokens / measured.code_lines:.2f} a line of code"
        )
        print(
            f"  dense lines: {100 * measured.dense_lines / measured.code_lines:.1f} %"
        )
        print(
            f"  comprehensions: {measured.per_thousand_lines(measured.comprehensions):.1f} per 1,000 lines"
        )
        print(
            f"  ternaries: {measured.per_thousand_lines(measured.ternaries):.1f} per 1,000 lines"
        )
        print(
            f"  comments that say why: {100 * measured.comments / measured.code_lines:.2f} % of the lines of code"
        )
        print(f"  replaced attributes: {measured.patches}")


if __name__ == "__main__":
    main()
