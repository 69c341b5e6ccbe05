"""The threat model names only tests that exist, and shows a test for every attack."""

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_ATTACK = re.compile(r"^\| (?!attack \||---)(.*) \| (.*) \| (.*) \|$", re.MULTILINE)


def test_the_tests_of_the_threat_model_exist() -> None:
    attacks = _ATTACK.findall(
        (_ROOT / "docs" / "threat-model.md").read_text(encoding="utf-8")
    )
    defined = {
        name
        for path in (_ROOT / "tests").rglob("test_*.py")
        for name in re.findall(
            r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert len(attacks) > 20
    for attack, _, shown_by in attacks:
        named = re.findall(r"`(test_\w+)`", shown_by)
        assert named, attack
        assert set(named) <= defined, attack
