"""Makes all pictures of the documentation: ``python -m docs.make.screenshots [NAME
...]``.

Draws those of :mod:`docs.make.guide_pictures`. For those of the dashboard, runs a
server in a temporary home, makes the scene of :mod:`docs.make.picture_scene` through
its API, walks through the pages as its people, and ends the server. Needs Chromium
(``CHROMIUM`` names another program). ``--unchanged`` takes no picture and records that
all pictures still show their pages, after a change of a template that nobody sees.
"""

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, Page, ViewportSize, sync_playwright

from app.cli.demo import running
from app.core.settings import Settings
from docs.make import guide_pictures, page_digests, palette_png
from docs.make.guide_pictures import FOLDER
from docs.make.picture_scene import Scene, built
from grovekeeper_client.client import Client
from tests.support.chromium import CHROMIUM, FLAGS

_FLAGS = [*FLAGS, "--hide-scrollbars"]
_WIDE, _PHONE = (
    ViewportSize(width=1200, height=800),
    ViewportSize(width=390, height=844),
)
_HIGHEST = 1_700
"""Pixels of the highest picture; what is below is left out."""


@dataclass(frozen=True)
class _Shot:
    """One picture.

    Attributes:
        name: of the file.
        who: the person who is signed in; ``""`` for nobody.
        path: of the page.
        act: what the person does there first.
        part: the part of the page that is shown at the upper edge; the whole page by
            default.
    """

    name: str
    who: str
    path: str
    act: Callable[[Page], object] | None = None
    part: str | None = None


def _shots(scene: Scene) -> list[_Shot]:
    """The pictures of all pages."""
    dataset, model = f"/ui/datasets/{scene.dataset}", f"/ui/models/{scene.model}"
    ledger = f"/ui/ledger/{scene.dataset}"
    return [
        _Shot("sign-in", "", "/ui/sign-in"),
        _Shot("home", "ada", "/"),
        _Shot("first-steps", "newcomer", "/"),
        _Shot("datasets", "ben", "/ui/datasets"),
        _Shot("dataset", "ada", dataset),
        _Shot("dataset-uploads", "ada", f"{dataset}/uploads"),
        _Shot("dataset-access", "ada", f"{dataset}/access"),
        _Shot("dataset-rules", "ada", f"{dataset}/rules"),
        _Shot("declare", "ada", "/ui/datasets/new", _declare),
        _Shot(
            "upload",
            "ada",
            f"/ui/datasets/{scene.waves}/rows",
            lambda page: _upload(page, scene.rows),
        ),
        _Shot("erase-upload", "ada", f"{dataset}/uploads/{scene.upload}/erase"),
        _Shot("erase-dataset", "ada", f"{dataset}/erase"),
        _Shot("quote", "ben", f"{dataset}/train?algorithm=rpf&epsilon=0.5&recover=80"),
        _Shot("refused", "ben", f"{dataset}/train?algorithm=rpf&epsilon=5"),
        _Shot("jobs", "ben", "/ui/jobs"),
        _Shot("job", "ben", f"/ui/jobs/{scene.job}"),
        _Shot(
            "ask-statistics",
            "ben",
            f"{dataset}/statistics/new?statistic=histogram&column=age&bins=20,30,40,50,60,70"
            "&where=sex%3DFemale&epsilon=0.05&cells=%5B%22shard%22%2C%209%5D",
        ),
        _Shot("statistics", "ben", f"/ui/statistics/{scene.statistics}"),
        _Shot(
            "ask-profile",
            "ben",
            f"/ui/datasets/{scene.register}/profiles/new?epsilon=0.1&bins=8&size_share=0.1",
        ),
        _Shot("profile", "ben", f"/ui/profiles/{scene.profile}"),
        _Shot("models", "ben", "/ui/models"),
        _Shot(
            "comparison",
            "ben",
            f"/ui/models/comparison?models={scene.model}&models={scene.later_model}",
        ),
        _Shot("model", "ben", model),
        _Shot("prediction", "ben", model, _predict, part="#prediction"),
        _Shot("aliases", "ben", f"{model}?alias=staging", part="#aliases"),
        _Shot(
            "evaluate",
            "ben",
            f"{model}/evaluate?epsilon=0.1&counts=confusion&cells=%5B%22shard%22%2C%209%5D",
        ),
        _Shot("evaluation", "ben", f"/ui/evaluations/{scene.evaluation}"),
        _Shot(
            "choose",
            "ben",
            f"{dataset}/choice?models={scene.model}&models={scene.later_model}&epsilon=0.1&cells=%5B%22shard%22%2C%209%5D",
        ),
        _Shot("accounts", "dora", "/ui/ledger"),
        _Shot("ledger", "dora", ledger),
        _Shot("spent", "dora", f"{ledger}/spent?by=kind"),
        _Shot("entry", "dora", f"{ledger}/entries/4"),
        _Shot("population-ledger", "dora", f"/ui/ledger/{scene.population}"),
        _Shot("report", "dora", f"{ledger}/report"),
        _Shot("populations", "ada", "/ui/populations"),
        _Shot("approvals", "cleo", "/ui/approvals"),
        _Shot("administration", "admin", "/ui/admin"),
        _Shot("keys", "admin", "/ui/admin/keys"),
        _Shot("acts", "dora", "/ui/acts"),
        _Shot("acts-verified", "dora", "/ui/acts/verification"),
        _Shot("no-right", "scoring", ledger),
    ]


def _on_a_phone(scene: Scene) -> list[_Shot]:
    """The pictures on a phone, in dark."""
    return [
        _Shot("phone-dataset", "ada", f"/ui/datasets/{scene.dataset}"),
        _Shot(
            "phone-quote",
            "ben",
            f"/ui/datasets/{scene.dataset}/train?algorithm=rpf&epsilon=0.5",
            part="#answer",
        ),
        _Shot("phone-approvals", "cleo", "/ui/approvals"),
    ]


def _fill_declaration(page: Page, name: str, *, lower: str, upper: str) -> None:
    page.get_by_label("Name of the dataset").fill(name)
    page.get_by_label("Name", exact=True).first.fill("age")
    page.get_by_label("Lower").fill(lower)
    page.get_by_label("Upper").fill(upper)
    page.get_by_label("Name", exact=True).last.fill("readmitted")
    page.get_by_label("Classes").fill("no\nyes")


def _declare(page: Page) -> None:
    _fill_declaration(page, "visits", lower="120", upper="0")
    page.locator(".problem").get_by_text("Larger than the upper bound.").wait_for()


def _upload(page: Page, rows: Path) -> None:
    page.get_by_label("Store a file once more that was uploaded before").check()
    page.set_input_files("#file", rows)
    page.get_by_role("button", name="Upload", exact=True).click()
    page.locator("#answer").get_by_text("Only owners see this report").wait_for()


def _predict(page: Page) -> None:
    values = {
        "age": "39",
        "fnlwgt": "120000",
        "education-num": "13",
        "capital-gain": "2174",
        "capital-loss": "0",
    }
    for label, value in {**values, "hours-per-week": "45"}.items():
        page.get_by_label(label, exact=True).fill(value)
    for label, value in {
        "education": "Bachelors",
        "marital-status": "Married-civ-spouse",
        "relationship": "Husband",
    }.items():
        page.get_by_label(label, exact=True).select_option(value)
    page.get_by_role("button", name="Predict").click()
    page.get_by_role("status").wait_for()


@contextmanager
def _signed_in(
    browser: Browser, url: str, key: str | None, *, phone: bool
) -> Iterator[Page]:
    context = browser.new_context(
        viewport=_PHONE if phone else _WIDE,
        color_scheme="dark" if phone else "light",
        device_scale_factor=1,
    )
    with context:
        page = context.new_page()
        if key is not None:
            page.goto(f"{url}/ui/jobs")
            page.fill("#key", key)
            page.get_by_role("button", name="Sign in").click()
        yield page


def _taken(page: Page, url: str, shot: _Shot) -> bytes:
    """The picture of a page from its upper edge, or from a part of it: down to its end,
    or one screen of a phone.
    """
    answer = page.goto(f"{url}{shot.path}")
    # a picture of an error page would pass for one of the product
    if answer is None or answer.status >= 500:
        sys.exit(f"{shot.name}: {shot.path} is an internal error")
    if shot.act is not None:
        shot.act(page)
    top = (
        0
        if shot.part is None
        else page.locator(shot.part).evaluate(
            "part => part.getBoundingClientRect().top + scrollY"
        )
    )
    if page.viewport_size == _PHONE:
        page.evaluate(f"scrollTo(0, {top})")
        return page.screenshot()
    height = min(page.evaluate("document.documentElement.scrollHeight") - top, _HIGHEST)
    return page.screenshot(
        full_page=True,
        clip={"x": 0, "y": top, "width": _WIDE["width"], "height": height},
    )


def take(
    browser: Browser, url: str, keys: dict[str, str], shots: list[_Shot], *, phone: bool
) -> None:
    """Saves pictures, one person after another."""
    blank = browser.new_page()
    for shot in shots:
        with _signed_in(browser, url, keys.get(shot.who), phone=phone) as page:
            palette_png.write(
                FOLDER / f"dashboard-{shot.name}.png", _taken(page, url, shot), blank
            )
            page_digests.record([shot.name])


def main() -> None:
    """Draws the diagrams, and takes the pictures of the dashboard that the command line
    names (default all).
    """
    wanted = set(sys.argv[1:])
    if wanted == {"--unchanged"}:
        page_digests.record(page_digests.TEMPLATES)
        return
    guide_pictures.write()
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        settings = Settings.from_environment(os.environ, home=home)
        with (
            running(home, settings, port=0) as server,
            Client(server.url, server.key) as admin,
            sync_playwright() as play,
        ):
            scene = built(admin, lambda key: Client(server.url, key))
            keys = {**scene.keys, "admin": server.key}
            program = os.environ.get("CHROMIUM", CHROMIUM)
            browser = play.chromium.launch(executable_path=program, args=_FLAGS)
            for shots, phone in ((_shots(scene), False), (_on_a_phone(scene), True)):
                chosen = [shot for shot in shots if not wanted or shot.name in wanted]
                take(browser, server.url, keys, chosen, phone=phone)
            browser.close()


if __name__ == "__main__":
    main()
