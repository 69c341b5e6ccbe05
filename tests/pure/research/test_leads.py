"""Tests that leads pair runs of equal splits."""

import math
from fractions import Fraction
from pathlib import Path

import pytest

from research import leads

CELL = ("toy", Fraction(1))
OURS = {CELL: {0: 0.90, 1: 0.80, 2: 0.70}}


def test_the_lead_is_the_mean_of_differences_on_shared_splits() -> None:
    (lead,) = leads.leads(OURS, {CELL: {"peer": {0: 0.88, 1: 0.76, 9: 0.1}}})

    assert (lead.ours, lead.theirs) == pytest.approx((85.0, 82.0)), (
        "split 2 has no partner"
    )
    assert lead.difference == pytest.approx(3.0)
    assert lead.standard_error == pytest.approx(1.0)


def test_the_reference_is_the_method_with_the_largest_mean() -> None:
    (lead,) = leads.leads(
        OURS, {CELL: {"weak": {0: 0.99, 1: 0.1}, "strong": {0: 0.7, 1: 0.7}}}
    )

    assert lead.method == "strong"


def test_cells_that_one_side_did_not_run_have_no_lead() -> None:
    assert leads.leads(OURS, {("toy", Fraction(2)): {"peer": {0: 0.5}}}) == []


def test_a_single_shared_split_has_no_standard_error() -> None:
    (lead,) = leads.leads(OURS, {CELL: {"peer": {0: 0.95}}})

    assert lead.difference == pytest.approx(-5.0)
    assert math.isnan(lead.standard_error)


def test_references_are_selected_by_prefixes_of_their_names(tmp_path: Path) -> None:
    path = tmp_path / "peers.csv"
    path.write_text(
        "dataset,method,epsilon,split,accuracy,auroc\n"
        "toy,one-a,1.0,0,0.5,\ntoy,two,1.0,0,0.6,\ntoy,one-b,1.0,1,0.7,0.9\ntoy,one-c,,0,0.9,\n"
    )

    assert leads.reference_runs([path], ["one"]) == {
        CELL: {"one-a": {0: 0.5}, "one-b": {1: 0.7}}
    }


def test_the_accuracy_of_a_repeated_split_is_the_mean_of_its_runs(
    tmp_path: Path,
) -> None:
    first, again = tmp_path / "first.csv", tmp_path / "again.csv"
    first.write_text(
        "dataset,algorithm,epsilon,repeat,accuracy\ntoy,ours,1,0,0.9\ntoy,ours,1,1,0.8\ntoy,other,1,1,0.1\n"
    )
    again.write_text("dataset,algorithm,epsilon,repeat,accuracy\ntoy,ours,1,0,0.7\n")

    assert leads.our_runs([first, again], "ours") == {
        CELL: {0: pytest.approx(0.8), 1: pytest.approx(0.8)}
    }
