"""The description of each algorithm in ``GET /algorithms`` is complete and agrees with the proofs and result tables."""

import re
from pathlib import Path

import pytest

from app.forests import catalogue
from app.forests.contract.about import About, Measured

ROOT = Path(__file__).parents[4]
OURS = ["auto", "rpf", "nbrt"]
TOLERANCE = 2.0
"""Points by which a newly measured table may differ before the number in the description must change."""

STORIES = {"auto": catalogue.AUTO.about, **{slug: each.about for slug, each in catalogue.BY_SLUG.items()}}


def percent_in(table: str, slug: str, measured: Measured) -> float:
    """The mean that a page of results states for a dataset, an algorithm on an account, and an ε."""
    account = "" if measured.accountant == "pure" else f"@{measured.accountant}"
    columns: list[str] = []
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[:2] == ["dataset", "algorithm"]:
            columns = cells
        elif cells[:2] == [measured.dataset, f"`{slug}{account}`"]:
            found = re.match(r"[0-9.]+", cells[columns.index(f"ε = {measured.epsilon}")])
            assert found
            return float(found[0])
    raise AssertionError(f"{slug} on {measured.dataset} is not in the table")


@pytest.mark.parametrize("slug", sorted(STORIES))
def test_a_story_is_whole(slug: str) -> None:
    told = STORIES[slug]

    assert (told.claimed is None) is (told.wrong is None) is (slug in OURS)
    assert all(text.endswith(".") and "  " not in text for text in (told.claimed, told.wrong, told.here) if text)
    assert bool(told.accuracy) is (slug != "auto")
    assert (ROOT / told.proof).is_file()
    assert (ROOT / told.results).is_file()
    if slug != "auto":
        assert f"`{slug}`" in (ROOT / told.proof).read_text(encoding="utf-8")


@pytest.mark.parametrize("slug", sorted(set(STORIES) - {"auto"}))
def test_accuracies_stand_in_the_tables(slug: str) -> None:
    told: About = STORIES[slug]
    table = (ROOT / told.results).read_text(encoding="utf-8")

    for measured in told.accuracy:
        assert float(measured.percent) == pytest.approx(percent_in(table, slug, measured), abs=TOLERANCE)


def test_the_read_outs_of_one_release_share_their_story() -> None:
    three = [STORIES[slug] for slug in ("rdt-mv", "rdt-ta", "rdt-pa")]

    assert len({(each.claimed, each.wrong, each.here, each.proof) for each in three}) == 1
    assert len({each.accuracy for each in three}) == 3


@pytest.mark.parametrize("slug", sorted(catalogue.BY_SLUG))
def test_a_parameter_states_its_default_or_the_rule_that_chooses_it(slug: str) -> None:
    """A description that promises a rule beside a fixed default, or no rule beside none, misleads who reads it."""
    for parameter in catalogue.BY_SLUG[slug].parameters:
        assert (parameter.default is None) is ("y default" in parameter.description), parameter.name
