"""The functions that theorems speak of are those that somebody read beside the theorems."""

import pytest

from tests.support.pins import (
    PINS,
    RENEWS,
    ROOT,
    Pin,
    digest,
    proved,
    read_pins,
    renewed,
)

PINNED = read_pins()
FUNCTION = '''
class Budget:
    def fits(self, amount):
        """Whether an amount fits."""
        # all of it
        return self.load + amount <= self.cap
'''


@pytest.mark.parametrize("pin", PINNED, ids=lambda pin: f"{pin.theorem}-{pin.function}")
def test_a_function_is_the_one_that_its_theorem_was_read_beside(pin: Pin) -> None:
    assert renewed(pin).digest == pin.digest, (
        f"{pin.function} in {pin.file} has changed: read the theorem {pin.theorem} again, "
        f"then renew the pin in {PINS.relative_to(ROOT)}: {RENEWS}"
    )


def test_every_pinned_theorem_is_proved() -> None:
    assert {pin.theorem for pin in PINNED} <= proved()


def test_a_comment_changes_no_digest_and_a_comparison_does() -> None:
    before = digest(FUNCTION, "Budget.fits")
    reworded = FUNCTION.replace("all of it", "and what is held").replace(
        "Whether", "If"
    )
    assert digest(reworded.replace(" + amount", " +  amount"), "Budget.fits") == before
    assert digest(FUNCTION.replace("<=", "<"), "Budget.fits") != before
    assert digest(FUNCTION.replace("self.cap", "self.load"), "Budget.fits") != before
