"""Serialise answers to the bytes that are stored and sent."""

from app.access.idempotency import Answer
from app.wire import base


def answer(status: int, body: base.Answer, *, location: str | None = None) -> Answer:
    """Serialises an answer's body, once: replays send the same bytes."""
    return Answer(status, body.model_dump_json(by_alias=True).encode("utf-8"), location)
