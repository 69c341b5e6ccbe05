"""States that an output of a public dataset has no privacy guarantee."""

from collections.abc import Mapping
from typing import Any

from app.privacy import receipts
from app.privacy.adjacency import Adjacency
from app.privacy.events import Event, NonPrivate

SENTENCE = "No privacy: the owner declared this dataset public, so nothing about its rows is protected."
_EXACT = "It was computed on the exact rows, without noise."
_NOISY = (
    "The mechanism drew the noise that it draws for {epsilon}{delta} on a {accountant} account, for comparison. No "
    "account paid."
)


def guarantee(event: Event, *, price: Mapping[str, Any] | None) -> dict[str, Any]:
    """The members of a card that stand in place of a guarantee.

    Args:
        event: of the output.
        price: the size of the noise, as answers show it (``PriceOut``); ``None`` without noise.
    """
    return {"privacy": "none", "text": f"{SENTENCE} {_computed(event, price)}"}


def receipt(event: Event, *, price: Mapping[str, Any] | None) -> str:
    """The receipt: what was computed, and for a private mechanism the noise of its parts."""
    if price is None:
        return f"{SENTENCE} {_EXACT}"
    lines = receipts.in_words(event, accountant=price["accountant"], adjacency=Adjacency.ADD_REMOVE_ONE)
    return f"{SENTENCE} {_computed(event, price)}\n{lines}"


def _computed(event: Event, price: Mapping[str, Any] | None) -> str:
    if price is None or isinstance(event, NonPrivate):
        return _EXACT
    delta = "" if price["delta"] is None else f" and δ = {price['delta']}"
    return _NOISY.format(epsilon=f"ε = {price['epsilon']}", delta=delta, accountant=price["accountant"])
