"""The page on which an owner uploads rows: the report of the API, and the same limits
and rights.
"""

import re
import socket

import httpx
import pytest

from tests.support.databases import on_one_idle_server, on_one_server
from tests.support.pages import hidden, section, signed_in, text_of
from tests.support.server import CSV, Server

ROWS = "age,height,sex,income\n39,1.7,Male,<=50K\n400,1.7,,>50K\n"


def _path(dataset: str) -> str:
    return f"/ui/datasets/{dataset}/rows"


def _counts(page: str) -> dict[str, list[int]]:
    """The numbers of the report, by column."""
    found = re.findall(
        r'<th scope="row">([^<]*)</th>((?:<td class="number">\d+</td>)+)', page
    )
    return {
        name: [int(number) for number in re.findall(r"\d+", cells)]
        for name, cells in found
    }


@on_one_idle_server
def test_a_refused_form_keeps_how_the_file_is_written(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    form = hidden(browser.get(_path(dataset)).text)
    chosen = {"separator": ";", "decimal": ",", "encoding": "latin-1"}
    sent = {**form, **chosen, "missing": "NA,<.>", "again": "on"}
    page = browser.post(
        _path(dataset), data=sent, files={"file": ("rows.csv", "age;sex\n1;2\n")}
    ).text
    assert re.findall(r'value="([^"]*)" selected', page) == list(chosen.values())
    assert 'value="NA,&lt;.&gt;"' in page
    assert re.findall(r'name="(\w+)" checked', page) == ["again"]
    assert "<details open>" in page
    empty = browser.get(_path(dataset)).text.partition("data-upload")[2]
    assert not re.search(r"\b(selected|checked|open)\b", empty.partition("</form>")[0])


@on_one_server
def test_the_report_is_that_of_the_api_and_a_form_that_is_sent_twice_is_one_upload(
    server: Server,
) -> None:
    dataset, other = server.declared()["id"], server.declared()["id"]
    expected = server.admin.http.post(
        f"/datasets/{other}/rows?accept_unknown=true", content=ROWS, headers=CSV
    ).json()
    browser = signed_in(server, server.granted(dataset, "owner"))
    form = hidden(browser.get(_path(dataset)).text)
    refused = browser.post(
        _path(dataset), data=form, files={"file": ("rows.csv", ROWS)}
    )
    assert refused.status_code == 422
    assert "1 (50.0 %)" in refused.text
    assert "accept such cells above" in refused.text
    form["accept_unknown"] = "on"
    answers = [
        browser.post(_path(dataset), data=form, files={"file": ("rows.csv", ROWS)})
        for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    report = {
        item["name"]: [item["clamped"], item["missing"], item["unknown"]]
        for item in expected["columns"]
    }
    assert _counts(answers[0].text) == report
    assert "2 rows stored" in answers[0].text
    assert "Some cells were empty" in answers[0].text
    marked = [name for name, counts in report.items() if any(counts)]
    assert (
        re.findall(r'class="chosen"><th scope="row">(\w+)', answers[0].text) == marked
    )
    assert any(sum(numbers) for numbers in report.values())
    assert len(server.admin.http.get(f"/datasets/{dataset}").json()["epochs"]) == 1
    second = hidden(browser.get(_path(dataset)).text) | {"accept_unknown": "on"}
    refused = browser.post(
        _path(dataset), data=second, files={"file": ("rows.csv", ROWS)}
    )
    assert refused.status_code == 409
    assert "are those of upload" in refused.text
    stored = browser.post(
        _path(dataset),
        data=second | {"again": "on"},
        files={"file": ("rows.csv", ROWS)},
    )
    assert (stored.status_code, "They are stored twice" in stored.text) == (201, True)


@on_one_idle_server
def test_an_admin_reads_no_number_of_rows_on_the_page(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.caller("admin"))
    form = hidden(browser.get(_path(dataset)).text)
    one_row = ROWS.partition("400")[0]
    stored = browser.post(
        _path(dataset), data=form, files={"file": ("rows.csv", one_row)}
    )
    assert stored.status_code == 201
    assert "The upload is complete" in stored.text
    assert "rows stored" not in stored.text
    assert "Every value is one that the declaration lists" in stored.text
    assert 'class="chosen"' not in stored.text


@on_one_idle_server
@pytest.mark.parametrize("name", ["rows.tsv", "rows.txt"])
def test_a_file_of_tabs_has_the_ending_of_one(idle_server: Server, name: str) -> None:
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    form = hidden(browser.get(_path(dataset)).text)
    form |= {"separator": "tab", "accept_unknown": "on"}
    files = {"file": (name, ROWS.replace(",", "\t"))}
    stored = browser.post(_path(dataset), data=form, files=files)
    assert (stored.status_code, "2 rows stored" in stored.text) == (201, True)


@on_one_idle_server
def test_a_file_that_does_not_match_is_refused_by_column(idle_server: Server) -> None:
    dataset = idle_server.declared()["id"]
    browser = signed_in(idle_server, idle_server.admin)
    refused = browser.post(
        _path(dataset), files={"file": ("rows.csv", "age,sex\n39,Male\n")}
    )
    assert refused.status_code == 422
    assert "Columns that do not match" in refused.text
    assert "Nothing was stored" in refused.text
    header = ",".join(["age", "height", "sex", "income"]) + "\n"
    empty = browser.post(_path(dataset), files={"file": ("rows.csv", header)})
    assert (empty.status_code, "a header and no row" in empty.text) == (422, True)
    insisting = hidden(browser.get(_path(dataset)).text) | {"accept_empty": "on"}
    other = idle_server.declared()["id"]
    assert (
        browser.post(
            _path(other), data=insisting, files={"file": ("rows.csv", header)}
        ).status_code
        == 201
    )
    for name, body in (
        ("rows.xlsx", b"PK"),
        ("rows.csv.gz", b"no gzip"),
        ("rows.parquet", b"PAR1"),
    ):
        assert browser.post(
            _path(dataset), files={"file": (name, body)}
        ).status_code in (400, 415, 422)
    assert idle_server.admin.http.get(f"/datasets/{dataset}").json()["epochs"] == []


@on_one_idle_server
def test_only_owners_see_the_page_and_other_sites_upload_nothing(
    idle_server: Server,
) -> None:
    dataset = idle_server.declared()["id"]
    for role in ("analyst", "auditor"):
        browser = signed_in(idle_server, idle_server.granted(dataset, role))
        assert browser.get(_path(dataset)).status_code == 403
        assert (
            browser.post(_path(dataset), files={"file": ("rows.csv", ROWS)}).status_code
            == 403
        )
    assert (
        signed_in(idle_server, idle_server.caller("owner"))
        .get(_path(dataset))
        .status_code
        == 404
    )
    browser = signed_in(idle_server, idle_server.admin)
    elsewhere = {"Origin": "https://elsewhere.example"}
    assert (
        browser.post(
            _path(dataset), files={"file": ("rows.csv", ROWS)}, headers=elsewhere
        ).status_code
        == 400
    )
    assert idle_server.admin.http.get(f"/datasets/{dataset}").json()["epochs"] == []


@on_one_idle_server
@pytest.mark.parametrize(("role", "status"), [("analyst", 403), ("", 404)])
def test_no_byte_of_a_form_is_awaited_from_those_who_do_not_own_the_dataset(
    idle_server: Server, role: str, status: int
) -> None:
    dataset = idle_server.declared()["id"]
    browser = signed_in(
        idle_server,
        idle_server.granted(dataset, role) if role else idle_server.caller("owner"),
    )
    headers = {
        "Content-Length": "100000",
        "Content-Type": "multipart/form-data; boundary=b",
        "Expect": "100-continue",
    }
    form = browser.build_request("POST", _path(dataset), headers=headers)
    lines = "".join(f"{name}: {value}\r\n" for name, value in form.headers.items())
    with socket.create_connection(
        ("127.0.0.1", httpx.URL(idle_server.url).port or 0), timeout=60
    ) as connection:
        connection.sendall(f"POST {_path(dataset)} HTTP/1.1\r\n{lines}\r\n".encode())
        assert connection.recv(65_536).startswith(b"HTTP/1.1 %d " % status)


@on_one_idle_server
def test_an_upload_is_erased_by_its_owner_after_a_page_that_says_what_stays(
    idle_server: Server,
) -> None:
    dataset, http = idle_server.uploaded()["id"], idle_server.admin.http
    (epoch,) = http.get(f"/datasets/{dataset}").json()["epochs"]
    page, path = (
        f"/ui/datasets/{dataset}/uploads",
        f"/ui/datasets/{dataset}/uploads/{epoch['epoch']}/erase",
    )
    callers = {
        role: idle_server.granted(dataset, role) for role in ("analyst", "auditor")
    } | {"nobody": idle_server.caller("owner")}
    before = idle_server.footprint()
    for role, caller in callers.items():
        other, status = signed_in(idle_server, caller), 404 if role == "nobody" else 403
        assert [other.get(path).status_code, other.post(path).status_code] == [
            status,
            status,
        ]
        assert path not in other.get(page).text
    assert idle_server.footprint() == before

    browser = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    assert path in browser.get(page).text
    asked = text_of(browser.get(path))
    assert "What was spent on these rows stays spent" in asked
    assert "places" not in asked, "a row is the unit"
    assert http.get(f"/datasets/{dataset}").json()["epochs"] == [epoch], (
        "the question erases nothing"
    )
    assert browser.get(path.replace(epoch["epoch"], "ep_nothing")).status_code == 404
    erased = browser.post(path)
    assert (erased.status_code, erased.headers["Location"]) == (303, page)
    assert http.get(f"/datasets/{dataset}").json()["epochs"][0]["erased_at"] is not None
    shown = section(browser.get(page).text, "uploads")
    assert " 0 erased " in shown, "no row is stored any more"
    assert path not in browser.get(page).text
    assert "Its rows were erased on" in text_of(browser.get(path))


@on_one_idle_server
def test_a_dataset_is_erased_by_its_owner_who_types_its_name(
    idle_server: Server,
) -> None:
    declared, http = idle_server.uploaded(), idle_server.admin.http
    dataset, page = declared["id"], f"/ui/datasets/{declared['id']}"
    job = idle_server.submitted(dataset).json()["job_id"]
    callers = {
        role: idle_server.granted(dataset, role) for role in ("analyst", "auditor")
    }
    callers |= {"nobody": idle_server.caller("owner")}
    for role, caller in callers.items():
        other, status = signed_in(idle_server, caller), 404 if role == "nobody" else 403
        answers = [
            other.get(f"{page}/erase"),
            other.post(f"{page}/erase", data={"name": declared["name"]}),
        ]
        assert [answer.status_code for answer in answers] == [status, status]
        assert f"{page}/erase" not in other.get(f"{page}/uploads").text

    browser = signed_in(idle_server, idle_server.granted(dataset, "owner"))
    assert f"{page}/erase" in browser.get(f"{page}/uploads").text
    assert "Nothing is refunded." in text_of(browser.get(f"{page}/erase"))
    for name in ("", dataset, declared["name"].upper()):
        refused = browser.post(f"{page}/erase", data={"name": name})
        assert refused.status_code == 422
        assert "Not the name of the dataset." in refused.text
    assert http.get(f"/datasets/{dataset}").json()["deleted_at"] is None
    erased = browser.post(f"{page}/erase", data={"name": f" {declared['name']} "})
    assert (erased.status_code, erased.headers["Location"]) == (303, page)
    assert http.get(f"/jobs/{job}").json()["state"] == "cancelled"
    assert "The rows were erased on" in text_of(browser.get(page))
    assert "All rows were erased on" in text_of(browser.get(f"{page}/erase"))
    assert f"{page}/erase" not in browser.get(f"{page}/uploads").text
