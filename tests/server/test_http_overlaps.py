"""The overlap report: owners see rows that two of their datasets share, and other
callers learn nothing of them.
"""

from typing import Any

import pytest

from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.server import CSV, Caller, Server, csv_rows, declaration, training

ROWS = csv_rows(40)
HEADER, *LINES = ROWS.splitlines()


def part(first: int, last: int) -> str:
    return "\n".join([HEADER, *LINES[first:last], ""])


def declared_by(caller: Caller, *uploads: str, **changes: object) -> dict[str, Any]:
    dataset = caller.http.post("/datasets", json=declaration(**changes)).json()
    for upload in uploads:
        answer = caller.http.post(
            f"/datasets/{dataset['id']}/rows", content=upload, headers=CSV
        )
        assert answer.status_code == 201, answer.text
    return dict(dataset)


def overlaps(caller: Caller, dataset: str) -> list[tuple[int, int, dict[str, int]]]:
    """Rows, distinct rows and shared rows by dataset, upload by upload."""
    answer = caller.http.get(f"/datasets/{dataset}/overlaps")
    assert answer.status_code == 200, answer.text
    return [
        (
            epoch["rows"],
            epoch["distinct"],
            {each["dataset"]: each["rows"] for each in epoch["shared"]},
        )
        for epoch in answer.json()["epochs"]
    ]


@on_one_idle_server
def test_copy_subset_and_repetition_are_seen_by_their_owner(
    idle_server: Server,
) -> None:
    owner = idle_server.caller("owner")
    first = declared_by(owner, part(0, 30))["id"]
    turned = "\n".join(
        ",".join(reversed(line.split(","))) for line in [HEADER, *LINES[0:10]]
    )
    renamed = declared_by(
        owner, turned, part(35, 40), part(0, 12), population="others"
    )["id"]

    assert overlaps(owner, first) == [(30, 30, {renamed: 12})]
    assert overlaps(owner, renamed) == [
        (10, 10, {first: 10, renamed: 10}),
        (5, 5, {}),
        (12, 12, {first: 12, renamed: 10}),
    ]
    shown = owner.http.get(f"/datasets/{first}/overlaps").json()
    assert shown["epochs"][0]["shared"][0]["population"].startswith("others")
    assert owner.http.delete(f"/datasets/{renamed}").status_code == 204
    assert overlaps(owner, first) == [(30, 30, {})], "erased rows left no fingerprints"


@on_one_idle_server
def test_only_the_owner_sees_overlap_and_a_guess_in_another_dataset_reveals_nothing(
    idle_server: Server,
) -> None:
    """A caller who uploads one row of a stranger's dataset sees no difference from an
    upload without the row.
    """
    victim, attacker = idle_server.caller("owner"), idle_server.caller("owner")
    secret = declared_by(victim, part(0, 30))["id"]
    hit, miss = (declared_by(attacker, part(at, at + 1))["id"] for at in (3, 35))

    assert overlaps(attacker, hit) == overlaps(attacker, miss) == [(1, 1, {})]
    assert overlaps(victim, secret) == [(30, 30, {})], (
        "what the attacker did is not shown to the owner either"
    )
    assert attacker.http.get(f"/datasets/{secret}/overlaps").status_code == 404
    for role in ("analyst", "predictor", "auditor"):
        refused = idle_server.granted(secret, role).http.get(
            f"/datasets/{secret}/overlaps"
        )
        assert (refused.status_code, refused.json()["type"]) == (403, "role-missing")
    admin = idle_server.admin.http.get(f"/datasets/{secret}/overlaps")
    assert (admin.status_code, admin.json()["type"]) == (403, "role-missing")
    idle_server.admin.http.put(
        f"/datasets/{hit}/grants/{victim.id}", json={"role": "analyst"}
    )
    assert overlaps(victim, secret) == [(30, 30, {})], (
        "a dataset that one may train on is not one's own"
    )


@on_one_server
@pytest.mark.parametrize("same_owner", [True, False])
def test_no_answer_depends_on_an_overlap(server: Server, *, same_owner: bool) -> None:
    """Answers, balances, populations and admissible trainings are those of a dataset
    that shares no row.
    """
    first = server.caller("owner")
    declared_by(first, part(0, 30), population=f"people-of-{first.id}")
    second = first if same_owner else server.caller("owner")
    seen = []
    for rows in (part(0, 10), part(30, 40)):
        dataset = declared_by(second)
        uploaded = second.http.post(
            f"/datasets/{dataset['id']}/rows", content=rows, headers=CSV
        )
        quote = second.http.post("/plans", json=training(dataset["id"])).json()
        accepted = second.http.post(
            "/train",
            json=training(dataset["id"]),
            headers={"Idempotency-Key": dataset["id"]},
        )
        shown = second.http.get(f"/datasets/{dataset['id']}").json()
        report = uploaded.json() | {"epoch": ""}
        balance = second.http.get(f"/ledger/{dataset['id']}").json()
        seen.append(
            (uploaded.status_code, report, sorted(uploaded.headers), quote["price"], quote["fits"], quote["warnings"],
             accepted.status_code, accepted.json()["price"], shown["population"], shown["account"]["cap"],
             balance["cap"])
        )  # fmt: skip
    assert seen[0] == seen[1]


@on_one_idle_server
def test_uploads_from_before_there_were_fingerprints_are_shown_without_counts(
    idle_server: Server,
) -> None:
    owner = idle_server.caller("owner")
    dataset = declared_by(owner, part(0, 3))["id"]
    for file in (idle_server.settings.home / "prints" / dataset).iterdir():
        file.unlink()
    assert overlaps(owner, dataset) == [(None, None, {})]


@on_one_idle_server
def test_a_unit_column_is_no_part_of_what_a_row_says(idle_server: Server) -> None:
    owner = idle_server.caller("owner")
    unit = {"column": "patient", "max_rows": 2}
    text = "\n".join(
        [
            f"{HEADER},patient",
            *(f"{line},p{index}" for index, line in enumerate(LINES[:4])),
            LINES[4] + ",",
            "",
        ]
    )
    with_units = declared_by(owner, text, privacy_unit=unit)["id"]
    plain = declared_by(owner, part(0, 5))["id"]
    assert overlaps(owner, with_units) == [(4, 4, {plain: 4})], (
        "dropped rows have no fingerprint"
    )
