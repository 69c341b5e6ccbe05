"""The report of an upload warns of marks for missing values that were stored as OTHER,
with an option that helps.
"""

import shlex
from urllib.parse import parse_qs

import pytest

from app.datasets.upload_bodies import Dialect
from app.services.datasets.erase import erase_upload
from app.services.installation import Installation
from tests.support import people
from tests.support.crash_scene import OWNER
from tests.support.databases import on_one_database

pytestmark = pytest.mark.contract


def _schema(*, missing: bool) -> dict[str, object]:
    city = {"name": "city", "type": "categorical", "categories": ["Bern"]}
    return {
        "features": [city | {"missing": missing}],
        "label": people.SCHEMA["label"],
    }


def _body(marks: str) -> bytes:
    return b"city,income\n" + b"Bern,low\n" * 60 + f"{marks},low\n".encode()


@on_one_database
@pytest.mark.parametrize("mark", ["NA", "#N/A", "(null)", "#DIV/0!"])
def test_a_warning_names_an_option_in_two_spellings_that_helps(
    installation: Installation, mark: str
) -> None:
    dataset = people.declared(installation, schema=_schema(missing=True))["id"]
    report = people.upload(installation, dataset, _body(mark))
    (warning,) = report["warnings"]
    assert warning.startswith("1 cells of city are no declared value, and some of them")
    words = shlex.split(warning.replace("(", " ").replace(").", " "))
    parameter = next(word for word in words if word.startswith("missing="))
    stated = parse_qs(parameter)["missing"][0]
    read = Dialect.of(",", ".", "utf-8", stated)
    erase_upload(installation, OWNER, dataset, upload=report["epoch"])
    again = people.upload(installation, dataset, _body(mark), dialect=read)
    assert again["columns"][0]["missing"] == 1
    assert not any("declared value" in warning for warning in again["warnings"])
    assert f"--missing {shlex.quote(mark)} " in warning


@on_one_database
def test_no_warning_advises_what_does_not_help(installation: Installation) -> None:
    dataset = people.declared(installation, schema=_schema(missing=False))["id"]
    body = _body("NA") + b"Bern,NA\n"
    assert people.upload(installation, dataset, body)["warnings"] == []
