"""Maps the parts of a job to fields of an answer: the first part to the job's fields, the second to ``unlabelled``."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.jobs.tables import JobPart
from app.wire.training import PriceOut, UnlabelledOut


def part_fields(parts: Sequence[JobPart]) -> dict[str, Any]:
    """Privacy, reservation and price of every part: fields of ``TrainOut`` and ``JobOut``."""
    first, *others = parts
    return {
        "privacy": first.privacy,
        "reservation_id": first.reservation_id,
        "price": price_out(first.price),
        "unlabelled": _second(others[0]) if others else None,
    }


def price_out(stored: Mapping[str, Any] | None) -> PriceOut | None:
    """A stored price; ``None`` where nothing was noisy."""
    return None if stored is None else PriceOut.model_validate(stored)


def _second(part: JobPart) -> UnlabelledOut:
    return UnlabelledOut(
        dataset=part.dataset,
        dataset_name=part.dataset_name,
        reservation_id=part.reservation_id,
        price=price_out(part.price),
    )
