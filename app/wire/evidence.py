"""Defines the types of proofs, of the signer and of deployments."""

from typing import Annotated, Literal

from pydantic import Field

from app.wire.base import Answer
from app.wire.ledger import AccountNamed
from grovekeeper_common.json_types import JsonObject

DigestText = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class InclusionOut(Answer):
    """An inclusion proof: the hashes that lead from an entry to the root of the log at
    this size.
    """

    kind: Literal["inclusion"]
    origin: str
    size: int
    sequence: int
    entry: JsonObject
    path: list[DigestText]


class ConsistencyOut(Answer):
    """A consistency proof: the log of a later checkpoint begins with the log of an
    earlier one.
    """

    kind: Literal["consistency"]
    origin: str
    from_size: int
    size: int
    path: list[DigestText]


class SignerOut(Answer):
    """The public key that verifies checkpoints: in PEM, and in the form of tools for
    signed notes.
    """

    name: str
    algorithm: Literal["ed25519"]
    public_key: str
    verifier_key: str


class DeploymentOut(AccountNamed):
    """A record for the public registry of deployments in the version ``form``, what its
    owner adds, and more facts.
    """

    form: str
    record: JsonObject
    missing: dict[Literal["required", "optional"], list[str]]
    facts: JsonObject
