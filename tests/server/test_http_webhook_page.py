"""The page of a dataset's webhooks over HTTP: their last deliveries, and a test event."""

from tests.support.databases import on_one_idle_server
from tests.support.operations import WEBHOOK
from tests.support.pages import section, signed_in
from tests.support.server import Server

pytestmark = on_one_idle_server


def test_an_owner_tests_a_webhook_by_form(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    owner = idle_server.granted(dataset, "owner")
    browser, page = signed_in(idle_server, owner), f"/ui/datasets/{dataset}/webhooks"
    assert "No webhook yet." in section(browser.get(page).text, "webhooks")
    webhooks = f"/datasets/{dataset}/webhooks"
    body = WEBHOOK | {"url": "https://hooks.invalid/<b>"}
    webhook = owner.http.post(webhooks, json=body).json()["id"]
    shown = browser.get(page).text
    assert "<b>" not in shown
    assert "nothing delivered yet" in section(shown, "webhooks")
    tested = browser.post(f"{page}/{webhook}/test")
    assert (tested.status_code, tested.headers["Location"]) == (303, page)
    (told,) = owner.http.get(webhooks).json()["webhooks"]
    # the test is delivered within seconds, perhaps already
    assert told["waiting"] + len(told["deliveries"]) >= 1
    shown = section(browser.get(page).text, "webhooks")
    assert f"{webhook}, told about request.refused; 1 event waits" in shown
    unknown = browser.post(f"{page}/wh_none/test")
    assert unknown.status_code == 404
    assert section(unknown.text, "webhooks"), "the page stays, with the reason above"


def test_the_tab_is_for_owners(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    page = f"/ui/datasets/{dataset}/webhooks"
    for role, is_shown in (("owner", True), ("analyst", False), ("auditor", False)):
        browser = signed_in(idle_server, idle_server.granted(dataset, role))
        tabs = browser.get(f"/ui/datasets/{dataset}").text
        assert (f'href="{page}"' in tabs) is is_shown, role
        shown = section(browser.get(page).text, "webhooks")
        assert ("Your key may not see the webhooks" in shown) is not is_shown
    assert browser.post(f"{page}/wh_none/test").status_code == 403
