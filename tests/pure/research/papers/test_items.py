"""The list of the papers' items: its page, its counts, the places that it names, and a
lemma that it calls checked.
"""

import re

import numpy as np
import pytest

from research import printed_tables
from research.papers import __main__ as tables
from research.papers import ablations, entrances, items_page
from research.papers.forests import catalogue


def test_the_page_of_items_is_that_of_the_list() -> None:
    assert items_page.PAGE.read_text(encoding="utf-8") == items_page.text(), (
        "run: python -m research.papers.items_page"
    )


def test_the_entrance_of_every_paper_is_that_of_the_committed_runs() -> None:
    for name, text in entrances.pages().items():
        assert (tables.RESULTS / name).read_text(encoding="utf-8") == text, (
            "run: python -m research.papers.entrances"
        )
        assert "## Not explained" in text
    shown = {table for paper in entrances.PAPERS for table in paper.tables}
    assert shown == printed_tables.TABLES.keys()
    assert {item for paper in entrances.PAPERS for item in paper.items} == (
        items_page.PAPERS.keys()
    )


def test_an_odd_printed_number_is_no_explanation() -> None:
    """Where the printed MaxTree is no better than chance, nothing says why."""
    page = (tables.RESULTS / "paper-huang.md").read_text(encoding="utf-8")
    named = page.partition("## Not explained")[2].partition("## Not reproduced")[0]
    assert "Iris MaxTree" in named
    assert "Wine MaxTree" in named
    assert "Banknotes SSPE-1" in named
    page = (tables.RESULTS / "paper-bai.md").read_text(encoding="utf-8")
    named = page.partition("## Not explained")[2].partition("## Not reproduced")[0]
    assert "Wine-Quality MPSVM-N" in named


def test_the_depth_of_song_is_set_for_two_forests() -> None:
    """The item on their table 2 says for which."""
    tasks = {
        (name, task.slug): task
        for name in ("song-figure-4", "song-figure-5", "song-table-4")
        for task in ablations.ABLATIONS[name].tasks
        if task.slug in catalogue.REFERENCES
    }
    depths = {
        place: catalogue.plan(task.slug, task.parameters).parameters.get("max_depth")
        for place, task in tasks.items()
    }
    assert {place for place, depth in depths.items() if str(depth) == "10"} == {
        ("song-figure-4", "bms-rf-plain"),
        ("song-figure-5", "bms-rf-plain"),
        ("song-figure-5", "mrf-plain"),
    }


def test_every_item_is_counted_once_and_has_a_place_or_a_reason() -> None:
    named = [(item.paper, item.item) for item in items_page.items()]
    assert len(set(named)) == len(named)
    assert {paper for paper, _ in named} == items_page.PAPERS.keys()
    for item in items_page.items():
        assert item.status in items_page.STATES
        assert bool(item.where) != (item.status == items_page.NOT_REPRODUCED)
        assert item.remark or item.status != items_page.NOT_REPRODUCED
    for paper in items_page.PAPERS:
        for kind in ("Algorithm", "Lemma", "Theorem", "Table", "Figure"):
            numbers = sorted(
                int(name.split()[1])
                for of, name in named
                if of == paper and name.split()[0] == kind
            )
            assert numbers == list(range(1, len(numbers) + 1)), (paper, kind)
    assert sum(
        map(sum, (of_paper.values() for of_paper in items_page.counts().values()))
    ) == len(named)


@pytest.mark.parametrize("strength", [0.0, 1.0, 10.0])
@pytest.mark.parametrize("n_features", [2, 5])
def test_every_feature_has_at_least_the_probability_of_lemma_3(
    strength: float, n_features: int
) -> None:
    """Bai et al., appendix A; the smallest probability of the rule is that beside
    features of the largest decrease.
    """
    decreases = (
        np.array(np.meshgrid(*[[0.0, 0.5, 1.0]] * n_features)).reshape(n_features, -1).T
    )
    weights = np.exp(strength / 2 * decreases)
    chances = weights / weights.sum(axis=1, keepdims=True)
    bound = 1 / (1 + (n_features - 1) * np.exp(strength))
    assert chances.min() == pytest.approx(
        1 / (1 + (n_features - 1) * np.exp(strength / 2))
    )
    assert chances.min() >= bound - 1e-12


def test_every_place_exists() -> None:
    places = {
        link
        for item in items_page.items()
        for link in re.findall(r"\]\(([^)#]+)", item.where + item.remark)
    }
    assert len(places) > 10
    assert [
        link for link in places if not (items_page.PAGE.parent / link).is_file()
    ] == []
