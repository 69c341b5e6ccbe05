"""The list of the papers' items: its counts, the places that it names, and a lemma that
it calls checked; the pages of the papers.
"""

import re

import numpy as np
import pytest

from research import printed_tables
from research.papers import __main__ as tables
from research.papers import ablations, entrances, items
from research.papers.forests import catalogue


def test_the_pages_and_files_of_the_papers_are_those_of_the_committed_runs() -> None:
    for name, text in entrances.pages(entrances.Runs.of(tables.RESULTS)).items():
        assert (tables.RESULTS / name).read_text(encoding="utf-8") == text, (
            f"{name}: run python -m research.papers.entrances"
        )
        assert name.endswith(".csv") or "## Not explained" in text


def test_the_overview_says_once_how_the_pages_are_read() -> None:
    overview = entrances.OVERVIEW.read_text(encoding="utf-8")
    assert entrances.with_reading(overview) == overview
    assert overview.count("A run explains a difference of which it leaves half") == 1
    assert overview.count("\n## ") == 4


def test_every_paper_has_one_page_and_every_file_is_named_on_one() -> None:
    pages = {path.stem: path.read_text("utf-8") for path in tables.RESULTS.glob("*.md")}
    assert pages.keys() == {paper.name for paper in entrances.PAPERS}
    overview = (tables.RESULTS.parent / "papers.md").read_text(encoding="utf-8")
    named = "\n".join([*pages.values(), overview])
    plots = tables.RESULTS / "plots"
    for path in (*tables.RESULTS.glob("*.csv"), *plots.glob("*.svg")):
        assert path.name in named


def test_the_items_of_every_paper_are_on_a_page() -> None:
    shown = {table for paper in entrances.PAPERS for table in paper.tables}
    assert shown == printed_tables.TABLES.keys()
    assert {item for paper in entrances.PAPERS for item in paper.items} == (
        items.EDITIONS.keys()
    )
    for paper in entrances.PAPERS:
        page = (tables.RESULTS / f"{paper.name}.md").read_text(encoding="utf-8")
        for item in items.items():
            if item.paper in paper.items:
                assert item.item in page


def test_items_of_both_editions_are_listed_once() -> None:
    lines = [
        *items.lines(("preprint", "mrf")),
        *items.not_reproduced(("preprint", "mrf")),
    ]
    assert sum(line.startswith("| Lemma 3 |") for line in lines) == 1
    assert [line.split(" | ")[0] for line in lines if "selecting a label" in line] == [
        "| Lemma 7 (preprint)",
        "| Lemma 7 (journal)",
    ]
    (drawings,) = (line for line in lines if line.startswith("* A drawing"))
    assert drawings.endswith(
        "Figure 1, Figure 5 (preprint), Figure 6 (preprint), Figure 2 (journal)."
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


def test_forests_that_are_said_to_count_estimation_points_have_them() -> None:
    """CompRF-I and Breiman+M see all rows, or a bootstrap sample."""
    methods = {
        **printed_tables.TABLES["mrf-2"].methods,
        **printed_tables.TABLES["mrf-3"].methods,
    }
    parted = {
        name
        for name, method in methods.items()
        if any(
            parameter.name == "structure_share"
            for parameter in catalogue.REFERENCES[method.plain].parameters
        )
    }
    named = {
        word
        for sentence in re.split(r"[.;] ", printed_tables.OF_BAI)
        for word in re.findall(r"[A-Z][\w+-]+", sentence)
        if "estimation points" in sentence and word in methods
    }
    assert named == parted


def test_the_printed_single_trees_fall_on_one_dataset() -> None:
    page = (tables.RESULTS / "paper-bai.md").read_text(encoding="utf-8")
    assert "they fall by 0.5 (Wdbc), 0.7 (Cmc), 4.6 (Connect-4) points" in page


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


def test_the_sizes_of_song_are_those_of_our_runs_but_for_the_named_figures() -> None:
    """Their table 2 has 2 to 4 layers of 15, 20 or 30 trees."""
    tasks = {
        name: ablations.ABLATIONS[name].tasks
        for name in ("song-figure-2", "song-figure-4", "song-figure-5")
    }
    tasks["bms-3"] = [
        cell.plain for cell in printed_tables.rows("bms-3") if cell.plain is not None
    ]
    layers, trees = set(), set()
    for name, of_name in tasks.items():
        for task in of_name:
            if task.slug == "bms-rf-plain":
                planned = catalogue.plan(task.slug, task.parameters).parameters
                n_layers = int(planned["n_layers"])
                if n_layers not in (2, 3, 4):
                    layers.add(name)
                if int(planned["n_estimators"]) / n_layers not in (15, 20, 30):
                    trees.add(name)
    assert layers == {"song-figure-2"}
    assert trees == {"song-figure-4", "song-figure-5"}


def test_every_item_is_counted_once_and_has_a_place_or_a_reason() -> None:
    named = [(item.paper, item.item) for item in items.items()]
    assert len(set(named)) == len(named)
    assert {paper for paper, _ in named} == items.EDITIONS.keys()
    for item in items.items():
        assert item.status in items.STATES
        assert bool(item.where) != (item.status == items.NOT_REPRODUCED)
        assert item.remark or item.status != items.NOT_REPRODUCED
    for paper in items.EDITIONS:
        for kind in ("Algorithm", "Lemma", "Theorem", "Table", "Figure"):
            numbers = sorted(
                int(name.split()[1])
                for of, name in named
                if of == paper and name.split()[0] == kind
            )
            assert numbers == list(range(1, len(numbers) + 1)), (paper, kind)
    assert sum(
        map(sum, (of_paper.values() for of_paper in items.counts().values()))
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
        (paper.name, link)
        for paper in entrances.PAPERS
        for item in items.items()
        if item.paper in paper.items
        for link in re.findall(r"\]\(([^)]+)", item.where + item.remark)
    }
    assert len(places) > 10
    assert [place for place in places if not _is_there(*place)] == []


def _is_there(page: str, link: str) -> bool:
    """Whether the target of a link on a page exists, with its heading on the page."""
    path, _, anchor = link.partition("#")
    if path:
        return (tables.RESULTS / path).is_file()
    headings = re.findall(
        r"^#+ (.+)$", (tables.RESULTS / f"{page}.md").read_text("utf-8"), re.MULTILINE
    )
    return anchor in {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in headings
    }
