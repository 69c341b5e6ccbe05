"""Programs of others against a live server: each is installed from a lock of its own,
and runs a script.

``python3 run.py lock`` renews the locks, so these tests meet the newest versions. They
print the versions at their end.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

from app.api.main import create_app
from grovekeeper_verifier.main import main as verify
from tests.server.test_http_number_labels import ASKED, BUDGET
from tests.support.environments import environment, version_in
from tests.support.in_process import in_process
from tests.support.server import Caller, Server

pytestmark = [
    pytest.mark.parametrize("server", ["sqlite"], indirect=True),
    pytest.mark.long,
]

_ROOT = Path(__file__).parents[2]
_SCRIPTS = (Path(__file__).parent / "foreign", _ROOT / "docs" / "examples")
_AGE = {"name": "age", "type": "integer", "lower": 0, "upper": 100}
_HOURS = {"name": "hours", "type": "numeric", "lower": 0, "upper": 60, "missing": True}
_SEX = {
    "name": "sex",
    "type": "categorical",
    "categories": ["Female", "Male"],
    "missing": True,
}
_INCOME = {"name": "income", "classes": ["low", "high"]}
_DAYS = {"name": "days", "type": "number", "lower": 0, "upper": 60}
_ROWS = {
    "age": [39, 70, 101],
    "hours": [40.5, None, 2.0],
    "sex": ["Male", None, "else"],
}
_FULL_HOURS = {"hours": [40.5, 2.0, 17.25]}
_ENVIRONMENT = {
    "NO_PROXY": "127.0.0.1",
    "MLFLOW_ALLOW_FILE_STORE": "true",  # a registry without a database
    "PYTHONPATH": str(_ROOT / "clients" / "python"),
}
_NEWEST_PYTHON = {"client": (3, 12), "mlserver": (3, 12), "kserve": (3, 13)}
"""The newest version of Python that a program supports."""


@dataclass(frozen=True)
class Served:
    """Two models, one of them of numbers alone, each by an alias; their key; and a
    dataset that takes rows.
    """

    server: Server
    model: str
    of_numbers: str
    predictor: Caller
    dataset: str

    def predicted(self, model: str, columns: dict[str, Any]) -> list[Any]:
        """Labels and probabilities of ``/predict``."""
        answer = self.predictor.http.post(
            f"/models/{model}/predict", json={"columns": columns}
        ).json()
        return [answer["labels"], answer["probabilities"]]


@pytest.fixture(scope="module")
def served(server: Server) -> Served:
    dataset = _trained(server, [_AGE, _HOURS, _SEX])
    numbers = _trained(server, [_AGE, _HOURS])
    predictor = server.granted(dataset["id"], "predictor")
    grant = server.admin.http.put(
        f"/datasets/{numbers['id']}/grants/{predictor.id}", json={"role": "predictor"}
    )
    assert grant.is_success, grant.text
    names = [f"{it['name']}@production" for it in (dataset, numbers)]
    return Served(server, *names, predictor, dataset["id"])


def _trained(
    server: Server,
    features: list[dict[str, Any]],
    *,
    label: dict[str, Any] = _INCOME,
    asked: Mapping[str, object] = MappingProxyType({}),
    **declared: object,
) -> dict[str, Any]:
    dataset = server.declared(schema={"features": features, "label": label}, **declared)
    columns = [str(column["name"]) for column in (*features, label)]
    rows = [
        {
            "age": age,
            "hours": age % 60,
            "sex": ("Female", "Male")[age % 2],
            "income": ("low", "high")[age > 50],
            "days": age / 10,
        }
        for age in range(100)
    ]
    lines = [",".join(str(row[name]) for name in columns) for row in rows]
    text = "\n".join([",".join(columns), *lines])
    http = server.admin.http
    uploaded = http.post(
        f"/datasets/{dataset['id']}/rows",
        content=text,
        headers={"Content-Type": "text/csv"},
    )
    assert uploaded.is_success, uploaded.text
    model = server.trained(dataset["id"], **asked)["model_id"]
    assert http.put(
        f"/datasets/{dataset['id']}/aliases/production", json={"model": model}
    ).is_success
    return dataset


Run = Callable[..., list[Any]]


def script_of(program: str) -> Path:
    """What runs a program: a script of the tests, or an example of the documents."""
    name = f"with_{program.replace('-', '_')}.py"
    (script,) = (folder / name for folder in _SCRIPTS if (folder / name).exists())
    return script


@pytest.fixture
def run(
    tmp_path: Path, served: Served, record_property: Callable[[str, object], None]
) -> Run:
    """Installs a program, once in a test, and runs its script, whose lines are JSON."""

    @cache
    def installed(program: str) -> Path:
        return environment(program, tmp_path / "venv")

    def run_program(
        program: str, package: str, *arguments: str, key: Caller | None = None
    ) -> list[Any]:
        if sys.version_info[:2] > _NEWEST_PYTHON.get(program, sys.version_info[:2]):
            pytest.skip(f"{program} does not support this version of Python")
        python = installed(program)
        record_property("version", version_in(python, package))
        caller = key or served.predictor
        command = [
            python,
            script_of(program),
            served.server.url,
            caller.key,
            *arguments,
        ]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=_ENVIRONMENT
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    return run_program


def test_kserve_predicts_with_json_and_with_bytes(served: Served, run: Run) -> None:
    expected = served.predicted(served.model, _ROWS | _FULL_HOURS)
    assert run("kserve", "kserve", served.model) == [expected, expected]


def test_mlserver_s_codecs_predict_a_frame_and_an_array(
    served: Served, run: Run
) -> None:
    expected = [
        served.predicted(served.model, _ROWS),
        served.predicted(served.of_numbers, {"age": _ROWS["age"]} | _FULL_HOURS),
    ]
    assert run("mlserver", "mlserver", served.model, served.of_numbers) == expected


def test_what_polars_writes_is_stored_and_predicts(served: Served, run: Run) -> None:
    answers = run(
        "polars", "polars", served.dataset, served.model, key=served.server.admin
    )
    rows = {
        "age": [39, 70, 100],
        "hours": _ROWS["hours"],
        "sex": ["Male", None, "Female"],
    }
    assert answers == [18, served.predicted(served.model, rows)]


def test_what_duckdb_writes_is_stored(served: Served, run: Run, tmp_path: Path) -> None:
    assert run(
        "duckdb", "duckdb", served.dataset, str(tmp_path), key=served.server.admin
    ) == [4_000]


def test_a_token_of_oidc_provider_mock_is_a_key(
    served: Served, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Its provider is found by its issuer alone; its tokens live an hour, name no key
    and list one audience.
    """
    python = environment("oidc-provider-mock", tmp_path / "venv")
    record_property("version", version_in(python, "oidc-provider-mock"))
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(
            [python, script_of("oidc-provider-mock")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True, env={"NO_PROXY": "localhost"},
        ) as provider,
    ):  # fmt: skip
        assert provider.stdout is not None
        line = provider.stdout.readline()
        assert line, (tmp_path / "log").read_text()
        issuer, token = json.loads(line)
        app = create_app(
            replace(
                served.server.settings, oidc_issuer=issuer, oidc_audience="grovekeeper"
            )
        )
        with closing(app.state.installation), in_process(app) as api:
            answers = [
                api.request("GET", "/datasets", key=key).status_code
                for key in (token, f"{token}x")
            ]
        provider.communicate()  # its input ends, and so does it
    assert answers == [200, 401]


def test_the_client_uploads_trains_and_predicts_with_its_lowest_versions(
    served: Served, run: Run
) -> None:
    rows = {
        "age": [39, 70, 100],
        "hours": _ROWS["hours"],
        "sex": ["Male", None, "Female"],
    }
    labels, _ = served.predicted(served.model, rows)
    *answers, numbers, is_refused = run(
        "client", "pandas", served.dataset, served.model, key=served.server.admin
    )
    assert answers == [100, labels, labels, labels, ["high", "low"]]
    assert numbers[0] < numbers[-1]
    assert is_refused


@pytest.mark.parametrize(
    ("program", "least"), [("opendp", 0.5), ("dp-accounting", 0.46875)]
)
def test_an_adapter_runs_what_is_paid_and_opens_no_rows_when_refused(
    served: Served, run: Run, program: str, least: float
) -> None:
    budget = {"accountant": "pure", "epsilon": "1.25"}
    dataset = served.server.declared(budget=budget)["id"]
    price, *steps, end = run(program, program, dataset, key=served.server.admin)
    assert float(price) == least
    assert steps == ["rows opened", "int"] * 2
    assert end == f"refused with {1.25 - 2 * least:g} left"


def test_mlflow_registers_a_model_with_a_receipt_that_the_verifier_accepts(
    served: Served, run: Run, tmp_path: Path
) -> None:
    store = tmp_path / "store"
    file = tmp_path / "rows.csv"
    file.write_text("age,hours,sex\n39,40.5,Male\n70,,\n101,2,else\n")
    with pytest.raises(AssertionError, match="role-missing"):
        run("mlflow", "mlflow-skinny", served.model, str(store), str(file))
    assert not list(store.rglob("*.onnx")), "a key that may not read it logs nothing"
    http = served.server.admin.http
    card = http.get(f"/models/{served.model}").json()
    admin = served.server.admin
    arguments = (str(store), str(file))
    tags, digest, names, receipt, answer = run(
        "mlflow", "mlflow-skinny", served.model, *arguments, key=admin
    )
    labels, shares = served.predicted(served.model, _ROWS)
    assert answer["label"] == labels
    assert np.allclose(answer["probabilities"], shares)
    facts = {name.removeprefix("grovekeeper."): tag for name, tag in tags.items()}
    assert (facts["digest"], facts["onnx_sha256"]) == (card["digest"], digest)
    assert (facts["amount"], facts["unit"], facts["delta"]) == ("1", "epsilon", "0")
    checkpoint, proof = (
        f"{card['dataset_name']}{end}" for end in (".checkpoint", ".proof.json")
    )
    assert names == sorted(["card.json", checkpoint, proof])
    signer = tmp_path / "signer.pem"
    signer.write_text(http.get("/signer").json()["public_key"])
    evidence = [
        str(Path(receipt) / proof),
        "--checkpoint",
        str(Path(receipt) / checkpoint),
    ]
    assert verify([*evidence, "--public-key", str(signer)]) == 0

    dataset = _trained(
        served.server, [_AGE, _HOURS, _SEX], label=_DAYS, asked=ASKED, budget=BUDGET
    )
    model = f"{dataset['name']}@production"
    arguments = (str(tmp_path / "numbers"), str(file))
    *_, answer = run("mlflow", "mlflow-skinny", model, *arguments, key=admin)
    numbers, _ = replace(served, predictor=admin).predicted(model, _ROWS)
    assert list(answer) == ["number"]
    assert np.allclose(answer["number"], numbers)
    # how far apart they are is chance
    assert np.ptp(answer["number"]) > 0
