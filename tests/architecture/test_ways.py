"""Counts the modules that a request or a job passes, and the size of the code, against upper limits.

A reader of a request has to hold every module in mind that the request enters. A change that needs a higher limit needs
a record in docs/adr; a change that saves a fifth has to lower the limit.
"""

import ast
import gc
import io
import json
import sys
import threading
import tokenize
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from app.api.main import create_app
from app.api.middleware import Application
from app.cli.serve import server_config
from app.core import limits
from app.core.settings import Settings
from app.db.database import Database
from app.services.execution import run_job
from app.services.keys import create_admin
from app.services.releases.release import perform
from tests.support.databases import MigratedDatabase
from tests.support.in_process import InProcess, in_process
from tests.support.server import CSV, csv_rows, declaration, new_idempotency_key, training

APP = Path(__file__).parents[2] / "app"

MODULES = {
    "POST /train": 45,
    "GET /ledger/{id}": 28,
    "POST /models/{id}/predict, warm": 19,
    "POST /models/{id}/predict, cold": 31,
    "POST /models/{id}/evaluations": 45,
    "a job": 72,
}
"""The largest number of modules of ``app`` that each way enters: HTTP layers, transaction and, for a job, the child."""

SIZES = {"code tokens": 400_000, "files with TYPE_CHECKING": 7, "imports in functions": 51}
"""The largest size of ``app``. Limits on lines and files rewarded packed lines and joined files (ADR 0049)."""

NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}


class Recorder:
    """Records the modules of ``app`` whose functions a block calls, on all threads that this test has started."""

    def __init__(self) -> None:
        self._folder = f"{APP}/"
        self._entered: set[str] | None = None

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        entered, code = self._entered, frame.f_code
        if entered is not None and event == "call" and code.co_filename.startswith(self._folder):
            entered.add(code.co_filename)

    def modules(self, work: Callable[[], object]) -> set[str]:
        """The modules that the work enters, by their path below ``app``."""
        self._entered = entered = set[str]()
        try:
            work()
        finally:
            self._entered = None
        return {name.removeprefix(self._folder) for name in entered}


@contextmanager
def recording() -> Iterator[Recorder]:
    """A recorder of this thread and of all threads that start in the block."""
    recorder = Recorder()
    earlier = sys.getprofile(), threading.getprofile()
    threading.setprofile(recorder)
    sys.setprofile(recorder)
    try:
        yield recorder
    finally:
        sys.setprofile(earlier[0])
        threading.setprofile(earlier[1])  # type: ignore[arg-type]  # None ends it


class Service:
    """An application without background threads, and a worker, both in this process."""

    def __init__(self, client: InProcess, app: Application, key: str) -> None:
        self._client, self._installation, self._key = client, app.state.installation, key
        self._config = server_config(app)
        self._config.load()
        self.dataset = self.model = ""

    @classmethod
    @contextmanager
    def running(cls, settings: Settings, key: str) -> Iterator["Service"]:
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
        self._sent("POST", f"/datasets/{self.dataset}/rows", content=csv_rows(200), headers=CSV)

    def train(self) -> None:
        self._sent("POST", "/train", json=training(self.dataset, algorithm="mrf"))

    def work(self) -> None:
        claim = run_job.claim_next(self._installation)
        assert claim is not None
        run_job.run_job(self._installation, claim, lambda task, _: perform(task, on_tree_done=lambda: None))

    def evaluate(self) -> None:
        self.model = self.model or str(self._sent("GET", "/models")["models"][0]["id"])
        self._sent("POST", f"/models/{self.model}/evaluations", json={"epsilon": "1"})

    def show_ledger(self) -> None:
        self._sent("GET", f"/ledger/{self.dataset}")

    def predict(self) -> None:
        """Predicts by way of the server's protocol, which answers small predictions."""
        body = json.dumps({"columns": {"age": [30, 60], "height": [1.5, 1.6], "sex": ["Female", "Male"]}})
        head = f"POST /models/{self.model}/predict HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer {self._key}\r\n"
        answer = self._client.exchanged(self._config, f"{head}Content-Length: {len(body)}\r\n\r\n{body}".encode())
        assert answer.startswith(b"HTTP/1.1 200 "), answer

    def _sent(self, method: str, path: str, *, headers: Any = None, **options: Any) -> Any:
        headers = {**(headers or {}), **({} if method == "GET" else new_idempotency_key())}
        answer = self._client.request(method, path, key=self._key, headers=headers, **options)
        assert answer.status_code in (200, 201, 202), answer.text
        return answer.json()


@pytest.fixture(scope="module")
def entered(tmp_path_factory: pytest.TempPathFactory, migrated_database: MigratedDatabase) -> dict[str, set[str]]:
    """The modules that each way enters when this process has taken it before."""
    gc.collect()
    folder = tmp_path_factory.mktemp("ways")
    with migrated_database("sqlite", folder) as url, recording() as recorder:
        settings = Settings(home=folder / "home", database_url=url)
        with closing(Database.open(url)) as database:
            key = create_admin(database, "test").text
        with Service.running(settings, key) as service:
            service.declare()
            modules = {
                "POST /train": _fewest(recorder, service.train),
                "a job": _fewest(recorder, service.work),
                "GET /ledger/{id}": _fewest(recorder, service.show_ledger),
                "POST /models/{id}/evaluations": _fewest(recorder, service.evaluate),
            }
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(limits, "REVOCATION_S", 3_600)  # what predictions have read stays valid
                modules["POST /models/{id}/predict, warm"] = _fewest(recorder, service.predict)
            model = service.model
        with Service.running(settings, key) as service:
            service.model = model
            modules["POST /models/{id}/predict, cold"] = recorder.modules(service.predict)
    return modules


def _fewest(recorder: Recorder, work: Callable[[], object]) -> set[str]:
    """The modules of the repetition with the fewest: caches expire, and threads open connections."""
    work()
    return min((recorder.modules(work) for _ in range(3)), key=len)


@pytest.mark.parametrize("way", MODULES)
def test_a_way_enters_few_modules(entered: dict[str, set[str]], way: str) -> None:
    modules = sorted(entered[way])
    _require_at_most(MODULES[way], len(modules), f"modules entered by {way}: {', '.join(modules)}")


def test_the_code_is_small() -> None:
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in APP.rglob("*.py")]
    texts = [path.read_text(encoding="utf-8") for path in APP.rglob("*.py")]
    sizes = {
        "code tokens": sum(_n_code_tokens(text) for text in texts),
        "files with TYPE_CHECKING": sum("if TYPE_CHECKING" in text for text in texts),
        "imports in functions": sum(len(_imports_in_functions(tree)) for tree in trees),
    }
    assert sizes.keys() == SIZES.keys()
    for name, size in sizes.items():
        _require_at_most(SIZES[name], size, f"{name} of app")


def _n_code_tokens(text: str) -> int:
    """Tokens without comments, docstrings and the layout of lines."""
    docstrings = {_position(node) for node in ast.walk(ast.parse(text)) if _is_docstring(node)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return sum(token.type not in NO_CODE and token.start not in docstrings for token in tokens)


def _is_docstring(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _position(node: ast.AST) -> tuple[int, int]:
    assert isinstance(node, ast.Expr)
    return node.lineno, node.col_offset


def _imports_in_functions(tree: ast.Module) -> set[ast.AST]:
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    inside = (node for function in functions for node in ast.walk(function))
    return {node for node in inside if isinstance(node, ast.Import | ast.ImportFrom)}


def _require_at_most(limit: int, count: int, what: str) -> None:
    assert count <= limit, f"{count} instead of at most {limit} {what}"
    assert count > limit * 4 // 5, f"lower the limit of {limit} to {count} {what}"
