"""The deployment document is a valid record of the public registry once its owner has
added the missing members.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator, FormatChecker

from grovekeeper_client.cli.command import WrongUse
from grovekeeper_client.cli.ledger import complete
from grovekeeper_verifier.checkpoints import read_checkpoint, read_public_key
from tests.support.databases import on_one_idle_server
from tests.support.operations import EXTERNAL, new_population
from tests.support.registry_schema import RECORD
from tests.support.server import Server, new_idempotency_key

OWNER = yaml.safe_load(
    (
        Path(__file__).parents[2] / "docs" / "examples" / "deployment-owner.yaml"
    ).read_text()
)
ACCOUNTS: dict[str, tuple[dict[str, Any], str]] = {
    "pure": ({"budget": {"accountant": "pure", "epsilon": "3"}}, "Pure DP"),
    "zcdp": (
        {"budget": {"accountant": "zcdp", "epsilon": "1", "delta": "1e-6"}},
        "Zero-concentrated DP",
    ),
    "gdp": (
        {"budget": {"accountant": "gdp", "epsilon": "1", "delta": "1e-6"}},
        "Approximate DP",
    ),
    "labels": ({"protects": "label"}, "Custom"),
    "units": ({"privacy_unit": {"column": "patient", "max_rows": 3}}, "Pure DP"),
}


def _problems(record: dict[str, Any]) -> list[str]:
    validator = Draft202012Validator(RECORD, format_checker=FormatChecker())
    return [
        f"{error.json_path}: {error.message}" for error in validator.iter_errors(record)
    ]


def _document(server: Server, account: str) -> dict[str, Any]:
    answer = server.admin.http.get(f"/ledger/{account}/deployment")
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@on_one_idle_server
@pytest.mark.parametrize("kind", ACCOUNTS)
def test_the_record_is_valid_with_the_owners_part(
    idle_server: Server, kind: str
) -> None:
    changes, variant = ACCOUNTS[kind]
    document = _document(idle_server, idle_server.declared(**changes)["id"])
    complete(document, OWNER)
    record = document["record"]
    assert (
        document["missing"]["required"],
        _problems(yaml.safe_load(yaml.safe_dump(record))),
    ) == ([], [])
    assert (record["deployment"]["dp_variant"]["variant_name"], record["tier"]) == (
        variant,
        3,
    )


@on_one_idle_server
def test_what_is_missing_is_listed_and_not_invented(idle_server: Server) -> None:
    document = _document(idle_server, idle_server.declared()["id"])
    record, missing = document["record"], list(document["missing"]["required"])
    complete(document, {})
    assert missing == document["missing"]["required"]
    names = {
        problem.split("'")[1]
        for problem in _problems(record)
        if "is a required property" in problem
    }
    assert names == {
        pointer.split("/")[-1] for pointer in missing if "administrative" not in pointer
    } | {"administrative"}
    assert record["tier"] == 2
    assert "compliant" not in json.dumps(document).lower()


@on_one_idle_server
def test_the_owner_cannot_overwrite_what_the_service_knows(idle_server: Server) -> None:
    document = _document(idle_server, idle_server.declared()["id"])
    for part in (
        {"tier": 3},
        {"deployment": {"privacy_loss": {"privacy_parameters": {"epsilon": 0.1}}}},
        {"deployment": {"basic": {"data_product_type": "Dataset"}}},
        {"deployment": "mine"},
    ):
        with pytest.raises(WrongUse):
            complete(document, part)


def test_the_facts_are_those_of_the_ledger(idle_server: Server, tmp_path: Path) -> None:
    dataset = idle_server.declared(budget={"accountant": "pure", "epsilon": "3"})["id"]
    path = f"/ledger/{dataset}/reservations"
    assert (
        idle_server.admin.http.post(
            path, json=EXTERNAL, headers=new_idempotency_key()
        ).status_code
        == 201
    )
    lowered = {"cap": "2", "reason": "a test"}
    assert (
        idle_server.admin.http.post(f"/ledger/{dataset}/cap", json=lowered).status_code
        == 200
    )
    facts = _document(idle_server, dataset)["facts"]
    shown = {
        name: facts[name]
        for name in (
            "unit",
            "cap",
            "highest_cap",
            "charged",
            "remaining",
            "external_charges",
        )
    }
    assert shown == {
        "unit": "epsilon", "cap": "2", "highest_cap": "3", "charged": "0.001", "remaining": "1.999",
        "external_charges": 1,
    }  # fmt: skip
    assert (
        facts["guarantee"]
        == idle_server.admin.http.get(f"/ledger/{dataset}").json()["guarantee"]
    )
    (tmp_path / "signer").write_text(
        idle_server.admin.http.get("/signer").json()["public_key"]
    )
    (tmp_path / "note").write_text(facts["checkpoint"])
    assert (
        read_checkpoint(tmp_path / "note", read_public_key(tmp_path / "signer")).size
        == 4
    )


@on_one_idle_server
def test_epsilon_is_rounded_up_to_a_number(idle_server: Server) -> None:
    dataset = idle_server.declared(budget={"accountant": "pure", "epsilon": "0.3"})[
        "id"
    ]
    loss = _document(idle_server, dataset)["record"]["deployment"]["privacy_loss"]
    assert loss["privacy_parameters"] == {"epsilon": 0.30000000000000004}


@on_one_idle_server
def test_the_declared_size_is_written_as_other_numbers_are(idle_server: Server) -> None:
    for size, words in ((3_000, "size: 3,000. "), (None, "size: none. ")):
        document = _document(idle_server, idle_server.declared(public_size=size)["id"])
        assert words in json.dumps(document["record"])


@on_one_idle_server
def test_yaml_by_accept_has_the_same_content(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    answer = idle_server.admin.http.get(
        f"/ledger/{dataset}/deployment", headers={"Accept": "application/yaml"}
    )
    assert answer.headers["content-type"] == "application/yaml"
    loaded, document = yaml.safe_load(answer.text), _document(idle_server, dataset)
    for one in (loaded, document):
        one["facts"].pop("checkpoint")
    assert loaded == document


def test_a_population_has_a_document(idle_server: Server) -> None:
    http = idle_server.admin.http
    population = http.post("/populations", json=new_population()).json()
    for _ in range(2):
        member = idle_server.declared(population=population["name"])["id"]
        path = f"/ledger/{member}/reservations"
        charged = http.post(path, json=EXTERNAL, headers=new_idempotency_key())
        assert charged.status_code == 201
    document = _document(idle_server, population["id"])
    assert document["facts"]["external_charges"] == 2, "those of all members"
    complete(document, OWNER)
    assert (document["missing"]["required"], _problems(document["record"])) == ([], [])


def test_a_product_without_models_is_one_of_statistics(server: Server) -> None:
    dataset = server.uploaded()["id"]

    def shown() -> tuple[str, str]:
        deployment = _document(server, dataset)["record"]["deployment"]
        details = deployment["deployment_model"]["release_type_details"]
        return deployment["basic"]["data_product_type"], details

    product, details = shown()
    assert product == "Summary statistics"
    assert details.startswith("Models, statistics, profiles and evaluations")
    server.trained(dataset)
    assert shown()[0] == "Machine learning model"
