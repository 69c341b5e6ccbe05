"""Accounts that protect labels alone, over HTTP on both databases."""

import io
import re
from typing import Any

import pytest

from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.pages import signed_in
from tests.support.server import Server, training


def labelled(server: Server, **changes: object) -> dict[str, Any]:
    return server.uploaded(protects="label", **changes)


@on_one_server
def test_a_declaration_of_labels_says_what_is_protected(server: Server) -> None:
    dataset = labelled(server)

    assert (dataset["protects"], dataset["adjacency"]) == ("label", "label")


@on_one_server
def test_the_training_form_offers_what_runs_on_the_account(server: Server) -> None:
    browser = signed_in(server, server.admin)
    of_labels = {"sspe-2", "pte"}
    for dataset, offered in ((labelled(server), of_labels), (server.uploaded(), set())):
        form = browser.get(f"/ui/datasets/{dataset['id']}/train").text
        options = set(re.findall('<option value="([^"]*)"', form))
        assert options & of_labels == offered
        assert {"auto", "rpf", "mrf"} <= options
        # a profile is none of theirs
        own_bins = set(re.findall('value="([^"]*)" data-own-bins', form))
        assert own_bins == offered
        for slug in options & {"sspe-2", "pte", "rpf"}:
            asked = training(dataset["id"], algorithm=slug, parameters={})
            refused = server.admin.http.post("/plans", json=asked)
            assert refused.status_code == 200, (slug, refused.text)


@on_one_server
@pytest.mark.parametrize("algorithm", ["rdt-ta", "auto"])
def test_an_algorithm_for_rows_runs_at_half_of_what_is_charged_and_says_so(
    server: Server, algorithm: str
) -> None:
    dataset, rows = (
        labelled(server, public_size=20_000),
        server.uploaded(public_size=20_000),
    )
    quote = server.admin.http.post(
        "/plans", json=training(dataset["id"], algorithm=algorithm, parameters={})
    ).json()
    of_rows = server.admin.http.post(
        "/plans",
        json=training(rows["id"], algorithm=algorithm, parameters={}, epsilon="0.5"),
    ).json()

    assert quote["price"]["amount"] == "1"
    assert quote["event"] == of_rows["event"]
    assert any(
        "A changed label is both at once" in warning for warning in quote["warnings"]
    )
    assert not any("label" in warning for warning in of_rows["warnings"])
    assert len(quote["expected_accuracy"]["tables"]) >= 3
    assert (
        quote["expected_accuracy"]["tables"] == of_rows["expected_accuracy"]["tables"]
    )
    assert "counted at twice their ε" in quote["receipt"].splitlines()[-1]


@on_one_server
def test_the_card_speaks_of_labels_and_gives_no_number_for_rows(server: Server) -> None:
    dataset = labelled(server)
    job = server.trained(dataset["id"], epsilon="0.7")
    card = server.admin.http.get(f"/models/{job['model_id']}").json()

    assert card["guarantee"]["adds"]["label"] == "0.7"
    assert (
        card["guarantee"]["label"]
        == server.admin.http.get(f"/ledger/{dataset['id']}").json()["guarantee"][
            "label"
        ]
    )
    assert (card["guarantee"]["add_remove"], card["guarantee"]["replace_one"]) == (
        None,
        None,
    )
    assert card["guarantee"]["text"].startswith(
        "Labels only; features and membership are not protected."
    )
    assert "changing one label" in card["receipt"]


@on_one_server
def test_the_export_of_an_account_of_labels_verifies(server: Server) -> None:
    dataset = labelled(server)
    server.trained(dataset["id"], epsilon="0.7")
    export = server.admin.http.get(f"/ledger/{dataset['id']}/export").content
    summary = verify(io.BytesIO(export))

    assert summary.header.adjacency == "label"
    assert summary.kinds == {"open": 1, "reserve": 1, "charge": 1}
    assert summary.header.text(summary.tightest.load) == "0.7"
