"""Printed output of a job whose two parts are of one dataset: each price names its
part, the guarantee appears once.
"""

from collections.abc import Callable
from typing import Any

from typer.testing import Result

Run = Callable[..., Result]


def test_a_quote_says_which_part_costs_what(run: Run, service: Any) -> None:
    plan = service.answers["POST", "/plans"][1]
    also = {**plan, "price": {**plan["price"], "epsilon": "0.2", "amount": "0.2"}}
    service.answers["POST", "/plans"] = (200, {**plan, "unlabelled": also})
    said = run(
        "plan", "census", "-a", "sspe-1", "-e", "0.1", "--unlabelled", "census"
    ).stdout
    assert "its part with labels, on census\n  price                ε = 0.1 " in said
    assert "its part without labels, on census\n  price                ε = 0.2 " in said


def test_a_card_says_its_guarantee_once(run: Run, service: Any) -> None:
    card = service.answers["GET", "/models/md_1"][1]
    also = {
        "dataset": "ds_1",
        "dataset_name": "census",
        "guarantee": card["guarantee"],
        "persons_in_both": "The larger.",
    }
    service.answers["GET", "/models/md_1"] = (200, {**card, "unlabelled": also})
    said = run("models", "show", "md_1").stdout
    assert said.count("For any two datasets") == 1
    assert "The larger." in said

    register = {**also, "dataset": "ds_2", "dataset_name": "register"}
    service.answers["GET", "/models/md_1"] = (200, {**card, "unlabelled": register})
    said = run("models", "show", "md_1").stdout
    assert said.count("For any two datasets") == 2
    assert "For people in register:\nadds, given all earlier releases: 0.1 ε" in said

    hidden = {
        **also,
        "dataset": None,
        "dataset_name": None,
        "guarantee": {"adds": card["guarantee"]["adds"]},
    }
    service.answers["GET", "/models/md_1"] = (200, {**card, "unlabelled": hidden})
    said = run("models", "show", "md_1").stdout
    assert said.count("For any two datasets") == 1
    assert (
        "For people in the second dataset:\nadds, given all earlier releases: 0.1 ε"
        in said
    )
