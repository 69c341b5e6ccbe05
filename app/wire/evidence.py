"""Proofs about the log of an account, and the key that signs its checkpoints."""

from typing import Annotated, Literal

from pydantic import Field

from app.wire.base import Answer, JsonObject

DigestText = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class InclusionOut(Answer):
    """That an entry is in the log of a checkpoint with this size: the hashes beside its way to the root."""

    kind: Literal["inclusion"]
    origin: str
    size: int
    sequence: int
    entry: JsonObject
    path: list[DigestText]


class ConsistencyOut(Answer):
    """That the log of an earlier checkpoint is a beginning of the log of a later one."""

    kind: Literal["consistency"]
    origin: str
    from_size: int
    size: int
    path: list[DigestText]


class SignerOut(Answer):
    """The public half of the key that signs checkpoints: in PEM, and as tools for signed notes take it."""

    name: str
    algorithm: Literal["ed25519"]
    public_key: str
    verifier_key: str
