"""Public datasets: no account, no charge, and "no privacy" on everything that comes from them."""

import io
import json
from typing import Any

import pytest
from safetensors.numpy import load
from typer.testing import CliRunner

from app.cli.main import app as grovekeeper
from tests.support.databases import on_one_server
from tests.support.pages import signed_in
from tests.support.server import Server, new_idempotency_key, training

PUBLIC: dict[str, Any] = {"visibility": "public", "budget": None}
ROWS = {"rows": [{"age": 20, "height": 1.2, "sex": "Female"}, {"age": 90, "height": 1.8, "sex": "other"}]}
CART: dict[str, Any] = {"algorithm": "cart", "epsilon": None, "parameters": {}}


@pytest.fixture(scope="module")
def dataset(server: Server) -> dict[str, Any]:
    return server.uploaded(**PUBLIC)


@pytest.fixture(scope="module")
def model(server: Server, dataset: dict[str, Any]) -> str:
    return str(server.trained(dataset["id"], **CART)["model_id"])


@pytest.fixture(scope="module")
def evaluation(server: Server, model: str) -> dict[str, Any]:
    http, body = server.admin.http, {"metrics": ["accuracy", "confusion", "auroc"]}
    quote = http.post(f"/models/{model}/evaluations/quote", json=body)
    assert (quote.status_code, quote.json()["price"]) == (200, None)
    answer = http.post(f"/models/{model}/evaluations", json=body, headers=new_idempotency_key())
    assert answer.status_code == 202, answer.text
    job = server.ended(answer.json()["job_id"])
    return dict(http.get(f"/evaluations/{job['evaluation_id']}").json())


def test_a_public_dataset_has_no_account_and_no_ledger(server: Server, dataset: dict[str, Any]) -> None:
    assert (dataset["account"], dataset["visibility"]) == (None, "public")
    assert "No privacy" in dataset["warnings"][0]
    http = server.admin.http
    for path in ("", "/entries", "/export", "/checkpoint", "/deployment"):
        assert http.get(f"/ledger/{dataset['id']}{path}").status_code == 404, path
    assert http.get(f"/datasets/{dataset['id']}/rules").status_code == 404
    assert http.post(f"/ledger/{dataset['id']}/cap", json={"cap": "1", "reason": "x"}).status_code == 404
    joined = http.put(f"/datasets/{dataset['id']}/population", json={"population": "citizens"})
    assert (joined.status_code, joined.json()["type"]) == (409, "dataset-public")
    assert http.get(f"/ledger/{dataset['id']}/reservations").status_code == 404


def test_the_list_of_accounts_leaves_public_datasets_out(server: Server, dataset: dict[str, Any]) -> None:
    private = server.declared()["id"]
    owner = server.granted(private, "owner")
    granted = server.admin.http.put(f"/datasets/{dataset['id']}/grants/{owner.id}", json={"role": "owner"})
    assert granted.status_code == 200
    answer = owner.http.get("/ledger")
    assert (answer.status_code, [item["account"] for item in answer.json()["datasets"]]) == (200, [private])
    assert signed_in(server, owner).get("/ui/ledger").status_code == 200


def test_a_job_without_privacy_has_no_price_and_says_so_everywhere(
    server: Server, dataset: dict[str, Any], model: str
) -> None:
    http = server.admin.http
    quote = http.post("/plans", json=training(dataset["id"], **CART)).json()
    assert (quote["privacy"], quote["price"], quote["fits"], quote["remaining"]) == ("none", None, True, None)
    assert "No privacy" in quote["receipt"]
    card = http.get(f"/models/{model}").json()
    assert (card["privacy"], card["ledger"], card["event"]) == ("none", None, {"type": "non-private/1"})
    assert card["guarantee"]["text"].startswith("No privacy")
    job = http.get(f"/jobs/{card['job_id']}").json()
    assert (job["privacy"], job["reservation_id"], job["price"], job["charged"]) == ("none", None, None, False)
    [listed] = http.get("/models", params={"dataset": dataset["id"], "algorithm": "cart"}).json()["models"]
    assert listed["privacy"] == "none"
    predicted = http.post(f"/models/{model}/predict", json=ROWS).json()
    assert (predicted["privacy"], predicted["labels"]) == ("none", ["<=50K", ">50K"])
    inputs = [
        {"name": "age", "datatype": "INT64", "shape": [1], "data": [20]},
        {"name": "height", "datatype": "FP64", "shape": [1], "data": [1.5]},
        {"name": "sex", "datatype": "BYTES", "shape": [1], "data": ["Male"]},
    ]
    assert http.post(f"/v2/models/{model}/infer", json={"inputs": inputs}).json()["parameters"] == {"privacy": "none"}
    artifact = http.get(f"/models/{model}/artifact").content
    assert len(load(artifact)["root"]) == 2
    metadata = json.loads(io.BytesIO(artifact[8:]).read(int.from_bytes(artifact[:8], "little")))["__metadata__"]
    assert json.loads(metadata["grovekeeper"])["privacy"] == "none"


@on_one_server
def test_a_private_algorithm_runs_on_public_rows_at_any_epsilon(server: Server, dataset: dict[str, Any]) -> None:
    job = server.trained(dataset["id"], algorithm="rdt-ta", epsilon="1000", accountant="zcdp", delta="1e-6")
    assert (job["privacy"], job["reservation_id"], job["price"]["accountant"]) == ("none", None, "zcdp")
    card = server.admin.http.get(f"/models/{job['model_id']}").json()
    assert (card["privacy"], card["ledger"]) == ("none", None)
    assert "No account paid" in card["guarantee"]["text"]
    onnx = server.admin.http.get(f"/models/{job['model_id']}/artifact", params={"format": "onnx"})
    assert b"No privacy" in onnx.content


def test_an_evaluation_on_public_rows_is_exact_without_an_epsilon(evaluation: dict[str, Any]) -> None:
    assert (evaluation["privacy"], evaluation["price"], evaluation["ledger"]) == ("none", None, None)
    assert sum(map(sum, evaluation["confusion"]["counts"])) == 200
    assert evaluation["accuracy"]["estimate"] == 1.0 == evaluation["auroc"]["estimate"]
    assert evaluation["confusion"]["noise_sd"] == 0


@on_one_server
def test_a_private_dataset_never_takes_an_algorithm_without_privacy(server: Server) -> None:
    private = server.uploaded()
    before = server.footprint()
    for body in (training(private["id"], **CART), training(private["id"], algorithm="breiman", epsilon="1")):
        for path, headers in (("/plans", {}), ("/train", new_idempotency_key())):
            answer = server.admin.http.post(path, json=body, headers=headers)
            assert (answer.status_code, answer.json()["type"]) == (409, "dataset-private")
    assert server.footprint() == before


@on_one_server
@pytest.mark.parametrize(
    ("changes", "at"),
    [
        ({"epsilon": "1", "algorithm": "cart"}, "/epsilon"),
        ({"epsilon": None, "algorithm": "rdt-ta"}, "/epsilon"),
        ({"epsilon": None, "algorithm": "cart", "profile": "pf_x", "parameters": {}}, "/profile"),
        ({"accountant": "zcdp"}, "/delta"),
        ({"epsilon": None, "algorithm": "cart", "parameters": {"max_depth": -1}}, "/parameters/max_depth"),
    ],
)
def test_a_request_that_breaks_a_rule_of_public_datasets_is_refused(
    server: Server, dataset: dict[str, Any], changes: dict[str, Any], at: str
) -> None:
    answer = server.submitted(dataset["id"], **changes)
    assert (answer.status_code, answer.json()["errors"][0]["at"]) == (422, at)


@on_one_server
def test_the_accountant_of_a_private_dataset_is_that_of_its_account(server: Server) -> None:
    answer = server.submitted(server.uploaded()["id"], accountant="pure")
    assert answer.json()["errors"] == [{"at": "/accountant", "problem": "only-for-public-datasets"}]


@on_one_server
def test_pages_say_public_plainly(
    server: Server, dataset: dict[str, Any], model: str, evaluation: dict[str, Any]
) -> None:
    browser = signed_in(server, server.admin)
    job = server.admin.http.get(f"/models/{model}").json()["job_id"]
    train, plainly = f"/ui/datasets/{dataset['id']}/train", "Public, no privacy"
    for path in (
        f"/?name={dataset['name']}",
        f"/ui/datasets/{dataset['id']}",
        f"/ui/models/{model}",
        f"{train}?algorithm=cart",
        f"{train}?algorithm=rdt-ta&epsilon=3",
        f"/ui/models/{model}/evaluate",
    ):
        page = browser.get(path)
        assert (page.status_code, plainly in page.text) == (200, True), path
    assert "no charge, no privacy" in browser.get(f"/ui/jobs/{job}").text
    assert "public, no privacy" in browser.get("/ui/models").text
    form = {"algorithm": "cart", "epsilon": "", "once": "0123456789abcdef"}
    sent = browser.post(train, data=form)
    assert (sent.status_code, sent.headers["Location"][:9]) == (303, "/ui/jobs/")
    assert plainly in browser.get(f"/ui/evaluations/{evaluation['id']}").text


@on_one_server
def test_the_command_line_says_no_privacy(
    server: Server, dataset: dict[str, Any], model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GROVEKEEPER_URL", server.url)
    monkeypatch.setenv("GROVEKEEPER_API_KEY", server.admin.key)
    name = dataset["name"]
    for arguments, words in (
        (["datasets", "show", name], "public: no privacy"),
        (["datasets", "list", "--name", name], "none: public"),
        (["plan", name, "--algorithm", "cart"], "no charge, no privacy"),
        (["plan", name, "--algorithm", "rdt-ta", "--epsilon", "2"], "that of ε = 2"),
        (["models", "list", "--dataset", name], "cart (no privacy)"),
        (["models", "show", model], "No privacy"),
        (["jobs", "list", "--dataset", name], "no charge, no privacy"),
        (["algorithms"], "none: no privacy"),
    ):
        done = CliRunner().invoke(grovekeeper, arguments)
        assert (done.exit_code, words in done.output) == (0, True), (arguments, done.output)
