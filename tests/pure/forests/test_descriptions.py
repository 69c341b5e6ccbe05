"""The description of each algorithm in ``GET /algorithms`` is complete and agrees with
the proofs and result tables.
"""

import re
from pathlib import Path

import pytest

from grovekeeper_forests import catalogue
from grovekeeper_forests.expected_accuracy import at_epsilon_one

ROOT = Path(__file__).parents[3]
OURS = ["auto", "rpf", "nbrt"]
TOLERANCE = 2.0
"""Points by which a newly measured table may differ before the number in the
description must change.
"""

STORIES = {
    "auto": catalogue.AUTO.about,
    **{slug: each.about for slug, each in catalogue.BY_SLUG.items()},
}


def percent_in(table: str, slug: str, measured: dict[str, str]) -> float:
    """The mean that a page of results states for a dataset, an algorithm on an account,
    and an ε.
    """
    account = "" if measured["accountant"] == "pure" else f"@{measured['accountant']}"
    columns: list[str] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:2] == ["dataset", "algorithm"]:
            columns = cells
        elif cells[:2] == [measured["dataset"], f"`{slug}{account}`"]:
            match = re.match(
                r"[0-9.]+", cells[columns.index(f"ε = {measured['epsilon']}")]
            )
            assert match
            return float(match[0])
    raise AssertionError(f"{slug} on {measured['dataset']} is not in the table")


@pytest.mark.parametrize("slug", sorted(STORIES))
def test_the_description_of_an_algorithm_is_complete(slug: str) -> None:
    reported = STORIES[slug]

    assert (reported.claimed is None) is (reported.wrong is None) is (slug in OURS)
    assert all(
        text.endswith(".") and "  " not in text
        for text in (reported.claimed, reported.wrong, reported.here)
        if text
    )
    assert bool(at_epsilon_one(slug)) is (slug != "auto")
    assert (ROOT / reported.proof).is_file()
    assert (ROOT / reported.results).is_file()
    if slug != "auto":
        assert f"`{slug}`" in (ROOT / reported.proof).read_text(encoding="utf-8")


@pytest.mark.parametrize("slug", sorted(set(STORIES) - {"auto"}))
def test_accuracies_of_descriptions_equal_those_of_the_result_tables(slug: str) -> None:
    table = (ROOT / STORIES[slug].results).read_text(encoding="utf-8")
    reported = at_epsilon_one(slug)

    assert [measured["dataset"] for measured in reported] == [
        "adult",
        "banknote",
        "mushroom",
        "nursery",
        "pendigits",
    ]
    for measured in reported:
        assert float(measured["percent"]) == pytest.approx(
            percent_in(table, slug, measured), abs=TOLERANCE
        )


def test_the_read_outs_of_one_release_share_their_story_and_not_their_accuracy() -> (
    None
):
    three = ("rdt-mv", "rdt-ta", "rdt-pa")

    assert len({STORIES[slug] for slug in three}) == 1
    assert len({str(at_epsilon_one(slug)) for slug in three}) == 3


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_a_parameter_states_its_default_or_the_rule_that_chooses_it(slug: str) -> None:
    """A description that promises a rule beside a fixed default, or no rule beside
    none, misleads who reads it.
    """
    for parameter in catalogue.BY_SLUG[slug].parameters:
        assert (parameter.default is None) is ("y default" in parameter.description), (
            parameter.name
        )
