"""Below a path prefix that a reverse proxy removes: every address that leaves the
service has the prefix.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from urllib.parse import urljoin

import httpx
import pytest
from fastapi.routing import APIRoute
from sqlalchemy import select

from app.access.tables import AnswerRow
from app.api.authentication import COOKIE
from app.api.pages.routers import PAGES
from grovekeeper_client.client import Client
from tests.support.databases import MigratedDatabase
from tests.support.estate import Estate, built_estate, with_person
from tests.support.file_forms import BOUNDARY, body_of
from tests.support.operations import WEBHOOK, new_population
from tests.support.pages import hidden
from tests.support.prefix_proxy import PrefixProxy, prefix_proxy
from tests.support.server import (
    csv_rows,
    declaration,
    new_idempotency_key,
    running_server,
    training,
)

PREFIX = "/tools/grovekeeper"
ADDRESSES = {"action", "data-events", "formaction", "href", "src"}


@dataclass(frozen=True)
class Below:
    """A service with one object of each kind, and the proxy in front of it."""

    estate: Estate
    proxy: PrefixProxy

    def browser(self) -> httpx.Client:
        """A browser of an admin who has signed in."""
        browser = self.estate.server.client(None)
        browser.base_url, browser.headers["Origin"] = (
            httpx.URL(self.proxy.origin),
            self.proxy.origin,
        )
        key = self.estate.server.admin.key
        assert (
            browser.post(f"{PREFIX}/ui/sign-in", data={"key": key}).headers["Location"]
            == f"{PREFIX}/"
        )
        return browser

    def api(self) -> httpx.Client:
        """A client of the API with the key of an admin, whose base address has no
        prefix.
        """
        client = self.estate.server.client(self.estate.server.admin.key)
        client.base_url = httpx.URL(self.proxy.origin)
        return client


@pytest.fixture(scope="module")
def below(
    migrated_database: MigratedDatabase, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Below]:
    folder = tmp_path_factory.mktemp("below")
    with (
        migrated_database("sqlite", folder) as url,
        running_server(url, folder / "home", n_workers=0, path_prefix=PREFIX) as server,
        prefix_proxy(int(server.url.rpartition(":")[2]), PREFIX) as proxy,
    ):
        yield Below(built_estate(server, folder), proxy)


class _Addresses(HTMLParser):
    """Collects the addresses that a page writes, those of its forms that are posted
    apart.
    """

    def __init__(self) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.posts: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        is_post = tag == "form" and ("method", "post") in attrs
        for name, value in attrs:
            if name in ADDRESSES:
                (self.posts if is_post else self.links).add(value or "")
            elif name != "value":
                # the hidden field ``next`` is a path inside the service
                assert not (value or "").startswith("/"), (tag, name, value)


def _addresses(page: str) -> _Addresses:
    found = _Addresses()
    found.feed(page)
    return found


def _crawled(browser: httpx.Client, start: str) -> tuple[dict[str, int], set[str]]:
    """Statuses of all addresses that links lead to, and the addresses of forms that are
    posted.
    """
    statuses: dict[str, int] = {}
    posts: set[str] = set()
    waiting = [start]
    while waiting:
        address = waiting.pop().partition("#")[0]
        if address in statuses or address.startswith("data:"):
            continue
        assert address.startswith(f"{PREFIX}/"), address
        with browser.stream("GET", address) as answer:
            statuses[address] = answer.status_code
            if answer.headers["Content-Type"].startswith("text/html"):
                answer.read()
                found = _addresses(answer.text)
                waiting += [urljoin(address, link) for link in found.links]
                posts |= {
                    urljoin(address, action).partition("#")[0] for action in found.posts
                }
    return statuses, posts


def _paths_of_pages() -> dict[str, re.Pattern[str]]:
    """The routes of all pages that links may lead to, without the last, which answers
    unknown paths, and ``/ui``, which people type.
    """
    routes = [
        route
        for pages in PAGES
        for route in pages.routes
        if isinstance(route, APIRoute)
    ]
    return {
        route.path: route.path_regex
        for route in routes[:-1]
        if "GET" in route.methods and route.path not in ("/ui", "/ui/")
    }


def test_every_address_of_every_page_is_below_the_prefix_and_answers(
    below: Below,
) -> None:
    """A page that waits for a job names the stream of its events, which the crawl
    opens, too.
    """
    browser, dataset = below.browser(), below.estate.targets.dataset
    assert browser.get(f"{PREFIX}/ui").headers["Location"] == f"{PREFIX}/"
    of_form = browser.get(f"{PREFIX}/ui/jobs/jb_x/cancel")
    assert of_form.headers["Location"] == f"{PREFIX}/ui/jobs/jb_x"
    with_person(below.estate.server)
    queued = (
        below.api()
        .post(f"{PREFIX}/train", json=training(dataset), headers=new_idempotency_key())
        .json()
    )
    statuses, posts = _crawled(browser, f"{PREFIX}/ui/sign-in")
    assert {
        address: status for address, status in statuses.items() if status != 200
    } == {}
    assert f"{PREFIX}/ui/jobs/{queued['job_id']}/events" in statuses
    assert below.proxy.strays == []
    visited = [address.partition("?")[0].removeprefix(PREFIX) for address in statuses]
    for path, pattern in _paths_of_pages().items():
        assert any(pattern.match(address) for address in visited), (
            f"no link leads to {path}"
        )
    del browser.headers["Origin"]
    for action in posts:
        assert action.startswith(f"{PREFIX}/ui/"), action
        assert browser.post(action).status_code == 400, f"{action} is no form of a page"


def test_without_a_session_a_page_leads_to_the_sign_in_and_back(below: Below) -> None:
    visitor = below.estate.server.client(None)
    visitor.base_url, visitor.headers["Origin"] = (
        httpx.URL(below.proxy.origin),
        below.proxy.origin,
    )
    sent_away = visitor.get(f"{PREFIX}/ui/jobs")
    assert (sent_away.status_code, sent_away.headers["Location"]) == (
        303,
        f"{PREFIX}/ui/sign-in?next=%2Fui%2Fjobs",
    )
    form = hidden(visitor.get(sent_away.headers["Location"]).text)
    signed_in = visitor.post(
        f"{PREFIX}/ui/sign-in", data={**form, "key": below.estate.server.admin.key}
    )
    assert (signed_in.status_code, signed_in.headers["Location"]) == (
        303,
        f"{PREFIX}/ui/jobs",
    )
    assert "<h1>Jobs" in visitor.get(signed_in.headers["Location"]).text


@pytest.mark.parametrize(
    "following",
    [f"{PREFIX}/ui/jobs", "//elsewhere.example", "https://elsewhere.example"],
)
def test_signing_in_leads_to_the_start_page_for_what_is_no_path_inside_the_service(
    below: Below, following: str
) -> None:
    form = {"key": below.estate.server.admin.key, "next": following}
    answer = below.browser().post(f"{PREFIX}/ui/sign-in", data=form)
    assert answer.headers["Location"] == f"{PREFIX}/"


def test_signing_out_ends_the_session(below: Below) -> None:
    browser = below.browser()
    assert (
        browser.post(f"{PREFIX}/ui/sign-out").headers["Location"]
        == f"{PREFIX}/ui/sign-in"
    )
    assert (
        browser.get(f"{PREFIX}/").headers["Location"] == f"{PREFIX}/ui/sign-in?next=%2F"
    )


def test_forms_upload_and_train(below: Below) -> None:
    browser, dataset = below.browser(), below.estate.targets.dataset
    page = f"{PREFIX}/ui/datasets/{dataset}/rows"
    content_type = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    body = body_of(csv_rows(30).encode(), field=hidden(browser.get(page).text)["once"])
    stored = browser.post(page, content=body, headers=content_type)
    assert stored.status_code == 201
    assert f'href="{PREFIX}/ui/datasets/{dataset}/train"' in stored.text
    page = f"{PREFIX}/ui/datasets/{dataset}/train"
    quote = browser.get(page, params={"algorithm": "mrf", "epsilon": "0.5"})
    form = hidden(quote.text)
    submitted = [browser.post(page, data=form) for _ in range(2)]
    assert [answer.status_code for answer in submitted] == [303, 303]
    job, again = (answer.headers["Location"] for answer in submitted)
    assert job == again, "a form that is sent twice is one job"
    assert browser.get(job).status_code == 200
    cancelled = browser.post(f"{job}/cancel")
    assert (cancelled.status_code, cancelled.headers["Location"]) == (303, job)


def test_a_refused_form_is_shown_again_below_the_prefix(below: Below) -> None:
    page = f"{PREFIX}/ui/populations"
    refused = below.browser().post(page, data={"name": "", "once": "a" * 22})
    assert refused.status_code == 422
    assert all(
        address.startswith((PREFIX, "#", "?", "data:"))
        for address in _addresses(refused.text).links
    )


def test_what_the_api_made_is_found_at_its_location(below: Below) -> None:
    api, dataset = below.api(), below.estate.targets.dataset
    repeated = new_idempotency_key()
    bodies = {
        "/datasets": declaration(),
        "/populations": new_population(),
        "/train": training(dataset),
        "/keys": {"name": "below", "roles": []},
        f"/datasets/{dataset}/webhooks": WEBHOOK,
    }
    shows_secret = ("/keys", f"/datasets/{dataset}/webhooks")
    made = {
        path: api.post(
            f"{PREFIX}{path}",
            json=body,
            headers={} if path in shows_secret else repeated,
        )
        for path, body in bodies.items()
    }
    for path, answer in made.items():
        assert answer.headers["Location"].startswith(f"{PREFIX}/"), path
    for path in ("/datasets", "/populations", "/train"):
        again = api.post(f"{PREFIX}{path}", json=bodies[path], headers=repeated)
        assert again.headers["Location"] == made[path].headers["Location"]
        assert api.get(again.headers["Location"]).status_code == 200
    for path in ("/train", *shows_secret):
        assert api.delete(made[path].headers["Location"]).status_code in (200, 204)


def test_stored_answers_do_not_have_the_prefix(below: Below) -> None:
    """So an answer to a repetition is right after the prefix was changed."""
    with below.estate.server.database.read() as session:
        locations = set(session.execute(select(AnswerRow.location)).scalars())
    assert {"/jobs", "/datasets", "/ledger"} <= {
        f"/{location.split('/')[1]}" for location in locations if location
    }
    assert not any((location or "").startswith(PREFIX) for location in locations)


def test_a_browser_takes_the_cookie_beyond_this_machine(below: Below) -> None:
    """A cookie whose name begins with ``__Host-`` counts only with the path ``/``, for
    HTTPS, and without a domain.
    """
    headers = {"Host": "budget.example", "Origin": "https://budget.example"}
    browser = below.browser()
    browser.cookies.clear()
    form = {"key": below.estate.server.admin.key}
    cookie = browser.post(f"{PREFIX}/ui/sign-in", data=form, headers=headers).headers[
        "Set-Cookie"
    ]
    sent, *attributes = (part.strip() for part in cookie.split(";"))
    name = f"__Host-{COOKIE}.tools.grovekeeper"
    assert sent.startswith(f"{name}=")
    assert {"Path=/", "Secure"} <= set(attributes)
    assert "domain" not in cookie.lower()
    visitor = below.estate.server.client(None)
    page = f"{below.proxy.url}/ui/jobs"
    assert (
        visitor.get(
            page, headers={"Host": "budget.example", "Cookie": sent}
        ).status_code
        == 200
    )
    unnamed = sent.replace(name, f"__Host-{COOKIE}")
    assert (
        visitor.get(
            page, headers={"Host": "budget.example", "Cookie": unnamed}
        ).status_code
        == 303
    ), "of a neighbour"


def test_the_document_of_the_api_names_its_server(below: Below) -> None:
    assert below.api().get(f"{PREFIX}/openapi.json").json()["servers"] == [
        {"url": PREFIX}
    ]


def test_clients_probes_and_monitoring_go_on(below: Below) -> None:
    server, targets = below.estate.server, below.estate.targets
    for path in ("/healthz", "/readyz", "/openapi.json"):
        assert server.client(None).get(path).status_code == 200
    assert server.admin.http.get("/metrics").status_code == 200
    for address in (below.proxy.url, server.url):
        with Client(address, server.admin.key) as client:
            assert client.job(targets.job)["state"] == "succeeded"
