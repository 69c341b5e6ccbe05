"""The tables of flaws name every flaw once, and name only tests that exist."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
TABLE = re.compile(r"^\| ([ANC]\d+) \|.*\| (.*) \|$", re.MULTILINE)


def test_every_flaw_of_the_audit_is_listed_with_tests_that_exist() -> None:
    rows = TABLE.findall((TESTS / "privacy" / "README.md").read_text(encoding="utf-8"))
    defined = {
        name
        for path in TESTS.rglob("test_*.py")
        for name in re.findall(
            r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }

    published = [f"A{number}" for number in range(1, 32)]
    of_numbers = [f"N{number}" for number in range(1, 16)]
    elsewhere = [f"C{number}" for number in range(1, 111)]
    assert [flaw for flaw, _ in rows] == published + of_numbers + elsewhere
    for flaw, seen_by in rows:
        named = re.findall(r"`(test_\w+)`", seen_by)
        assert named or seen_by.startswith("no flaw of privacy"), flaw
        assert set(named) <= defined, flaw


def test_the_readme_names_every_file_of_tests_and_none_that_does_not_exist() -> None:
    named = set(
        re.findall(
            r"`(\w+\.py)`",
            (TESTS / "privacy" / "README.md").read_text(encoding="utf-8"),
        )
    )
    existing = {path.name for path in (TESTS / "privacy").glob("*.py")}

    assert named <= existing
    assert {name for name in existing if name.startswith("test_")} - named <= {
        Path(__file__).name
    }
