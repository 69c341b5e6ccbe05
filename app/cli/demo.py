"""Implements ``grovekeeper demo``: demonstrates the main features on a real dataset, in
a minute.

Every step is a request to an ordinary server, which runs as a process and ends with the
demo; the line after ``$`` is the equivalent command.
"""

import csv
import gzip
import io
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from types import FrameType

from app.cli.command import command
from app.core import processes
from app.core.errors import InstallationError
from app.core.settings import PREFIX, Settings
from grovekeeper_client.cli import jobs, ledger, prediction_rows, statistics
from grovekeeper_client.cli.command import Client, Plain, Waiting, option
from grovekeeper_client.cli.output import Output, amount
from grovekeeper_client.errors import ApiProblem
from grovekeeper_client.settings import ADMIN_KEY_FILE
from grovekeeper_common.json_types import JsonObject
from grovekeeper_forests.expected_accuracy import without_privacy

BUDGET = "3"
EPSILON = "1"
PURPOSE = "compare with last year"
TOO_MUCH = "5"
ERROR_SHARE = "0.01"
BINS = (30, 45, 60)
_SHOWN_COLUMNS = ("age", "education", "occupation", "hours-per-week")
_WIDTH = 100


class _Stopped(BaseException):
    """A signal to end the demo has arrived."""


@command
def demo(
    call: Plain,
    home: Path | None = option(
        "Keep everything in this folder; default a temporary one."
    ),
    port: int | None = option("Port of the server."),
    end: bool = option("Stop the server after the last step.", "--exit", default=False),
) -> None:
    """Show everything on a real dataset: a count with the error that was asked for, a
    quote, training, predictions, a refusal, the verified ledger.
    """
    settings = Settings.from_environment(
        os.environ, home=home and home.expanduser().absolute()
    )
    keeps = home is not None or bool(os.environ.get("GROVEKEEPER_HOME"))
    try:
        with _stoppable(), _folder(settings.home if keeps else None) as folder:
            _run(call.output, folder, settings, port=port, serve_on=not end)
    except _Stopped:
        call.output.say()
        call.output.say("stopped" if keeps else "stopped; the temporary folder is gone")


def _run(
    output: Output,
    folder: Path,
    settings: Settings,
    *,
    port: int | None,
    serve_on: bool,
) -> None:
    from grovekeeper_client.client import Client

    output.say(
        "Grovekeeper demo: a lifetime privacy budget, a private forest, free predictions, a ledger to check."
    )
    output.say(f"Data: {TITLE}.")
    output.say(f"Home: {folder}")
    with tempfile.TemporaryDirectory(prefix="grovekeeper-rows-") as rows:
        upload = Path(rows) / "adult.csv.gz"
        dataset = load_dataset(upload)
        with (
            running(folder, settings, port=port) as server,
            Client(server.url, server.key) as client,
        ):
            output.say(f"Grovekeeper is ready at {server.url}")
            tour = _Tour(output, client, dataset)
            summary = tour.run(upload, folder)
            output.say()
            output.json(summary | {"url": server.url})
            if serve_on:
                _serve_on(output, server, tour)
    _own_data(
        output,
        ["grovekeeper serve &    # the dashboard is at the address that it prints"],
    )


TITLE = "Adult (Census Income), Becker & Kohavi 1996, UCI Machine Learning Repository, CC BY 4.0"
_HELD_OUT_PART = 10


@dataclass(frozen=True)
class DemoDataset:
    """Adult, from the package; ``held_out`` are rows that are not uploaded, in the form
    of ``/predict``.
    """

    schema: JsonObject
    n_uploaded: int
    held_out: prediction_rows.Rows
    held_out_labels: list[str]

    @property
    def public_size(self) -> int:
        """The number of uploaded rows to two significant digits: what an owner may
        publish before the first row.
        """
        unit: int = 10 ** (len(str(self.n_uploaded)) - 2)
        return self.n_uploaded // unit * unit


def load_dataset(upload_to: Path) -> DemoDataset:
    """Reads the dataset and writes the part to upload to a file, as gzip CSV."""
    folder = resources.files("app.cli") / "demo_data"
    schema = json.loads((folder / "adult.json").read_text(encoding="utf-8"))
    text = gzip.decompress((folder / "adult.csv.gz").read_bytes()).decode("utf-8")
    header, *lines = text.splitlines(keepends=True)
    n_uploaded = len(lines) - len(lines) // _HELD_OUT_PART
    upload_to.write_bytes(
        gzip.compress((header + "".join(lines[:n_uploaded])).encode("utf-8"), mtime=0)
    )
    held_out = header + "".join(lines[n_uploaded:])
    labels = [
        row[schema["label"]["name"]] for row in csv.DictReader(io.StringIO(held_out))
    ]
    return DemoDataset(
        schema,
        n_uploaded,
        prediction_rows.from_csv(io.StringIO(held_out), schema),
        labels,
    )


@dataclass(frozen=True)
class DemoServer:
    """A running service; ``key_file`` has the admin's key, unless the operator set the
    key.
    """

    url: str
    key: str
    key_file: Path | None
    process: "subprocess.Popen[str]"


@dataclass
class _Tour:
    """The steps of the demo. Each prints its command and its result."""

    _output: Output
    _client: Client
    _dataset: DemoDataset
    _step: int = 0
    name: str = "adult"
    model_id: str = ""

    def run(self, upload: Path, folder: Path) -> JsonObject:
        """Runs all steps; returns the value that ``--json`` prints."""
        self._declare()
        self._upload(upload)
        statistics_id = self._count()
        quote = self._quote()
        self._train()
        accuracy, baseline = self._predict()
        refusal = self._refused()
        self._audit(folder)
        return {
            "dataset": self.name,
            "statistics": statistics_id,
            "model": self.model_id,
            "price": quote["price"],
            "held_out": {
                "rows": len(self._dataset.held_out),
                "accuracy": accuracy,
                "majority_class": baseline,
            },
            "refusal": refusal,
            "ledger": self._client.balance(self.name),
            "verified": True,
        }

    def _declare(self) -> None:
        self._begin(
            "The owner declares the dataset, before any row: public schema, lifetime budget, privacy unit",
            "datasets create DECLARATION.json",
        )
        declaration = {
            "schema": self._dataset.schema,
            "budget": {"accountant": "pure", "epsilon": BUDGET},
            "public_size": self._dataset.public_size,
        }
        for suffix in ("", *(f"-{number}" for number in range(2, 1000))):
            try:
                declared = self._client.declare_dataset(
                    {"name": f"adult{suffix}", **declaration}
                )
            except ApiProblem as problem:
                if problem.type != "name-taken":
                    raise
            else:
                self.name = declared["name"]
                break
        cap = amount(declared["account"], "cap")
        self._say(
            f"{self.name} may spend {cap} in its whole life. Raising that would be an entry in the ledger."
        )

    def _upload(self, file: Path) -> None:
        self._begin(
            f"The owner uploads {self._dataset.n_uploaded:,} rows, and sees a report that nobody else sees",
            f"datasets upload {self.name} adult.csv.gz",
        )
        report = self._client.upload_rows(self.name, file)
        kinds, rows = ["clamped", "missing", "unknown"], []
        for column in report["columns"]:
            counts = [column[kind] for kind in kinds]
            if any(counts):
                rows.append([column["name"], *counts])
        self._output.table(
            ["column", *kinds],
            rows,
            empty="every cell as declared",
            indent=3,
        )
        self._output.say()
        self._say(
            f"The last {len(self._dataset.held_out):,} rows of the file stay here; they measure accuracy later."
        )

    def _count(self) -> str:
        """Counts rows by age; returns the id of the released statistics."""
        edges = ",".join(map(str, BINS))
        self._begin(
            "An analyst counts people by age, and names the error she can bear in place of a price: 1 %",
            f"histogram {self.name} age --bins age={edges} --error 1% --wait",
        )
        table = {"statistic": "histogram", "column": "age", "bins": {"age": BINS}}
        request = {"error_share": ERROR_SHARE, "tables": [table]}
        quote = self._client.quote_statistics(self.name, request)
        self._say(
            f"Known before a row is read: each count is within ± {quote['tables'][0]['half_width']:.0f} rows of the "
            f"exact one, 95 times of 100, and costs {amount(quote['price'])}."
        )
        accepted = self._client.release_statistics(self.name, request)
        statistics_id = self._succeeded(accepted)["statistics_id"]
        released = self._client.statistics(statistics_id)
        statistics.show_table(self._output, released["tables"][0], indent=3)
        return str(statistics_id)

    def _quote(self) -> JsonObject:
        self._begin(
            "An analyst asks what a private forest would cost. This reads no row and costs nothing",
            f"plan {self.name} --epsilon {EPSILON}",
        )
        quote = self._client.plan({"dataset": self.name, "epsilon": EPSILON})
        self._say(f"{quote['why']}.")
        self._say(
            f"Price {amount(quote['price'])}, no more and no less; {quote['remaining']} of {quote['cap']} ε are left, "
            f"and afterwards ε up to {quote['left_afterwards']} would fit. --receipt prints every draw and its noise."
        )
        self._say(jobs.expected(quote["expected_accuracy"], recover=None))
        return quote

    def _train(self) -> None:
        self._begin(
            "The analyst trains it: the budget is charged before the first row is read",
            f"train {self.name} --epsilon {EPSILON} --purpose '{PURPOSE}' --wait",
        )
        accepted = self._client.train(
            {
                "dataset": self.name,
                "name": "demo forest",
                "epsilon": EPSILON,
                "purpose": PURPOSE,
            }
        )
        self.model_id = self._succeeded(accepted)["model_id"]
        self._command(f"models show {self.model_id}")
        self._say(self._client.model(self.model_id)["guarantee"]["text"])

    def _succeeded(self, accepted: JsonObject) -> JsonObject:
        """The job, when it has succeeded."""
        job = jobs.follow(self._client, accepted["job_id"], self._output, Waiting())
        if job["state"] != "succeeded":
            raise InstallationError(jobs.ended(job))
        return job

    def _predict(self) -> tuple[float, float]:
        self._begin(
            "A service asks for predictions. They are free, for ever",
            f"predict {self.model_id} ROWS.csv",
        )
        from grovekeeper_client.models import predict_rows

        truth = self._dataset.held_out_labels
        schema = self._client.model(self.model_id)["schema"]
        answer = predict_rows(
            self._client, self.model_id, self._dataset.held_out, schema=schema
        )
        rows = []
        for row, label, probabilities, true in zip(
            self._dataset.held_out[:5],
            answer["labels"],
            answer["probabilities"],
            truth,
            strict=False,
        ):
            probability = probabilities[answer["classes"].index(label)]
            shown = [row[name] for name in _SHOWN_COLUMNS]
            rows.append([*shown, label, f"{probability:.2f}", true])
        self._output.table(
            [*_SHOWN_COLUMNS, "predicted", "probability", "truth"],
            rows,
            empty="no rows",
            indent=3,
        )
        self._output.say()
        accuracy = sum(
            label == true for label, true in zip(answer["labels"], truth, strict=True)
        ) / len(truth)
        baseline = max(map(truth.count, answer["classes"])) / len(truth)
        self._say(
            f"Accuracy on the {len(truth):,} rows that were never uploaded: {accuracy:.1%}. Always naming the larger "
            f"class: {baseline:.1%}. A forest without any privacy on this table, in the committed benchmarks: "
            f"{without_privacy('adult'):.1%}."
        )
        return accuracy, baseline

    def _refused(self) -> JsonObject:
        self._begin(
            f"Somebody asks for ε = {TOO_MUCH}. The ledger refuses, and says what would fit",
            f"train {self.name} --epsilon {TOO_MUCH}",
        )
        try:
            self._client.train({"dataset": self.name, "epsilon": TOO_MUCH})
        except ApiProblem as problem:
            if problem.type != "budget-exceeded":
                raise
            self._say(f"refused ({problem.status} {problem.type}): {problem.detail}")
            self._say(f"largest ε that fits: {problem.body['largest_that_fits']}")
            return dict(problem.body)
        raise InstallationError(
            "the ledger admitted a job that its budget does not cover"
        )

    def _audit(self, folder: Path) -> None:
        self._begin(
            "An auditor reads the ledger, takes it away, and checks it with a program that shares no code",
            f"ledger show {self.name}",
        )
        ledger.show_accounts(self._output, [self._client.balance(self.name)], indent=3)
        self._output.say()
        self._command(f"ledger entries {self.name}")
        ledger.show_entries(self._output, self._client.entry_list(self.name), indent=3)
        self._output.say()
        export = folder / f"{self.name}.ledger.jsonl"
        self._command(f"ledger export {self.name} {export.name}")
        self._client.export_ledger(self.name, export)
        self._command(f"verify {export.name}")
        check = subprocess.run(
            processes.module_command("grovekeeper_verifier", str(export)),
            capture_output=True,
            text=True,
            check=False,
            env=processes.module_environment(os.environ),
        )
        for line in (check.stdout + check.stderr).splitlines():
            self._output.say(f"   {line}")
        if check.returncode != 0:
            raise InstallationError("the ledger was not verified")

    def _begin(self, title: str, command: str) -> None:
        self._step += 1
        self._output.say()
        self._output.say(f"{self._step}. {title}.")
        self._command(command)

    def _command(self, text: str) -> None:
        self._output.say(f"   $ grovekeeper {text}")

    def _say(self, text: str) -> None:
        for line in text.splitlines():
            indent = "   " + line[: len(line) - len(line.lstrip())]
            self._output.say(
                textwrap.fill(
                    line.strip(),
                    _WIDTH,
                    initial_indent=indent,
                    subsequent_indent=indent,
                )
            )


def _serve_on(output: Output, server: DemoServer, tour: _Tour) -> None:
    key = "your admin key"
    settings = [f"export GROVEKEEPER_URL={server.url}"]
    if server.key_file is not None:
        key = f"the key in {server.key_file}"
        settings.append(f"export GROVEKEEPER_API_KEY_FILE={server.key_file}")
    _own_data(output, settings)
    output.say(
        f"To look at what the demo made: models show {tour.model_id}, ledger show {tour.name}, keys list."
    )
    output.say(
        f"Serving until interrupted (Ctrl-C). Open the dashboard at {server.url} and sign in with {key}."
    )
    server.process.wait()
    raise InstallationError("the server ended by itself; see demo.log in its home")


def _own_data(output: Output, settings: Iterable[str]) -> None:
    """Prints the commands with which people continue on their data."""
    output.say(
        "Now your own data, in another terminal (docs/guides/owner.md explains each line):"
    )
    output.say()
    environment = Path(sys.prefix)  # of a checkout or of an installed release
    for line in (
        f". {shlex.quote(str(environment / 'bin' / 'activate'))}",
        *settings,
        "grovekeeper datasets init DICTIONARY.json declaration.json    # from a data dictionary, never from rows",
        "grovekeeper datasets create declaration.json",
        "grovekeeper datasets upload NAME rows.csv",
        "grovekeeper plan NAME --epsilon 1",
    ):
        output.say(f"   {line}")
    output.say()


@contextmanager
def _folder(home: Path | None) -> Iterator[Path]:
    if home is not None:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        yield home
        return
    with tempfile.TemporaryDirectory(
        prefix="grovekeeper-demo-", ignore_cleanup_errors=True
    ) as fresh:
        yield Path(fresh)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Ends the demo in order at the first SIGTERM, Ctrl-C or hang-up; later signals
    concern the end of its server.
    """
    assert threading.current_thread() is threading.main_thread(), (
        "signals arrive on the main thread"
    )
    numbers = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def stop(_number: int, _frame: FrameType | None) -> None:
        for number in numbers:
            signal.signal(number, signal.SIG_IGN)
        raise _Stopped

    before = {number: signal.signal(number, stop) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


_READY = "Grovekeeper is ready at "
_TELL_AFTER_S = 2.0
"""A server without a running job has ended after this time."""
_NOT_OURS = (
    "DATABASE_URL",
    "DATABASE_URL_FILE",
    "MIGRATION_URL",
    "MIGRATION_URL_FILE",
    "HOST",
)


@contextmanager
def running(
    home: Path, settings: Settings, *, port: int | None
) -> Iterator[DemoServer]:
    """Runs ``grovekeeper serve`` on a home as another process, which is ended on exit.

    The demo always uses loopback and the embedded database of its home, whatever the
    environment says.

    Raises:
        InstallationError: the server did not start, or its admin key is unknown.
    """
    environ = {
        name: value
        for name, value in os.environ.items()
        if name not in {PREFIX + it for it in _NOT_OURS}
    }
    chosen = str(_free_or_zero(settings.port) if port is None else port)
    options = ("--home", str(home), "--host", "127.0.0.1", "--port", chosen)
    log = home / "demo.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            processes.module_command("app.cli", "serve", *options),
            stdout=subprocess.PIPE,
            stderr=errors,
            env=processes.module_environment(environ),
            text=True,
            # Ctrl-C reaches the demo alone, which then ends the server
            start_new_session=True,
        )
    try:
        url = _ready_url(process, log)
        if settings.admin_key:
            yield DemoServer(url, settings.admin_key, None, process)
            return
        file = home / ADMIN_KEY_FILE
        if not file.is_file():
            raise InstallationError(
                "this home holds an installation whose admin key is not here; set GROVEKEEPER_ADMIN_KEY"
            )
        yield DemoServer(url, file.read_text(encoding="utf-8").strip(), file, process)
    finally:
        _stop(process)


def _ready_url(process: "subprocess.Popen[str]", log: Path) -> str:
    assert process.stdout is not None, "stdout is a pipe"
    for line in process.stdout:
        if line.startswith(_READY):
            return line.removeprefix(_READY).strip()
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    raise InstallationError(
        f"the server did not start: {lines[-1] if lines else 'it said nothing'}"
    )


def _stop(process: "subprocess.Popen[str]") -> None:
    """Ends the server, which finishes its running job; a signal that arrives from here
    on stops it now.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: process.send_signal(signal.SIGINT))
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=_TELL_AFTER_S)
    except subprocess.TimeoutExpired:
        print(
            "finishing the running job; press Ctrl-C again to stop now",
            file=sys.stderr,
            flush=True,
        )
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def _free_or_zero(port: int) -> int:
    """The default port if it is free, else 0."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return 0
    return port
