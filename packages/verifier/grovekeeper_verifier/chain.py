"""Checks the hash chain of an account, alike for every kind of entry, and the states
that entries state.

The sequence is 1, 2, 3 … without gaps; ``previous_hash`` is the hash of the entry
before; ``hash`` is that of the entry's content; times never decrease; the first entry,
and no other, opens the account; at the size of every checkpoint the Merkle root is the
signed one.

An entry of the kind ``state`` states the state after the entries before it. A service
that starts reads the newest such entry instead of the entries before it, so a wrong one
would admit too much.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from grovekeeper_verifier import canonical_json, json_fields
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.checkpoints import ORIGIN, Checkpoint
from grovekeeper_verifier.merkle_tree import GrowingTree, leaf

GENESIS = "0" * 64
"""The ``previous_hash`` of the first entry."""


class Broken(ValueError):
    """A well-formed line contradicts the lines before it; ``str()`` gives the reason."""


@dataclass(frozen=True)
class Link:
    """The fields that every entry has: ``amount`` in steps of the account's unit,
    ``details`` unparsed or None.
    """

    sequence: int
    kind: str
    amount: int
    job_id: str | None
    at: datetime
    previous_hash: str
    hash: str
    details: Json


class Chain:
    """The chain of one account up to the newest entry, with the checkpoints of its log."""

    def __init__(self, account: str, checkpoints: Sequence[Checkpoint]) -> None:
        of_account = (
            checkpoint
            for checkpoint in checkpoints
            if checkpoint.origin == f"{ORIGIN}{account}"
        )
        self.checkpoints = tuple(
            sorted(of_account, key=lambda checkpoint: checkpoint.size)
        )
        self.kinds: Counter[str] = Counter()
        self.last: Link | None = None
        self._tree = GrowingTree()

    def take(self, link: Link, value: Json) -> None:
        """Checks an entry's place in the chain and its hash, and appends it.

        Args:
            link: the entry.
            value: the whole line, whose canonical form is hashed.

        Raises:
            Broken: the entry does not follow the entry before.
        """
        self._check_place(link)
        assert isinstance(value, dict), "entries are objects"
        hashed = canonical_json.dumps(
            {name: item for name, item in value.items() if name != "hash"}
        )
        if hashlib.sha256(hashed).hexdigest() != link.hash:
            raise Broken(
                "hash is not that of the entry's content: the entry was changed"
            )
        if (link.kind == "open") is not (self.last is None):
            raise Broken("the first entry, and only the first, must be of kind open")
        self._check_root(link)
        self.kinds[link.kind] += 1
        self.last = link

    def check_end(self) -> None:
        """Checks, after the last line, that no entry is missing at the end.

        Raises:
            Broken: there is no entry, or a checkpoint covers more entries than there
                are.
        """
        if self.last is None:
            raise Broken("the export ends before its first entry")
        for checkpoint in self.checkpoints:
            if checkpoint.size > self.last.sequence:
                ends, covers = self.last.sequence, checkpoint.size
                raise Broken(
                    f"the export was truncated: it ends with entry {ends}, a checkpoint covers {covers}"
                )

    def _check_place(self, link: Link) -> None:
        expected = self.last.sequence + 1 if self.last else 1
        if link.sequence != expected:
            raise Broken(f"sequence is {link.sequence}, expected {expected}")
        if link.previous_hash != (self.last.hash if self.last else GENESIS):
            raise Broken("previous_hash is not the hash of the entry before")
        if self.last and link.at < self.last.at:
            raise Broken("the time is before that of the entry before")

    def _check_root(self, link: Link) -> None:
        if not self.checkpoints:
            return
        self._tree.add(leaf(link.hash))
        for checkpoint in self.checkpoints:
            if (
                checkpoint.size == link.sequence
                and checkpoint.root != self._tree.root()
            ):
                raise Broken(
                    f"the first {checkpoint.size} entries are not those whose root was signed at {checkpoint.at}"
                )


def check_repeated(details: Json, header: Json, names: Sequence[str]) -> None:
    """Checks that the details of the first entry repeat the header's facts about the
    account.

    Raises:
        Broken: a fact is missing in the details, or differs.
    """
    assert isinstance(details, dict), "details are read as an object"
    assert isinstance(header, dict), "headers are read as objects"
    for name in names:
        if name not in details:
            raise Broken(f"the first entry's details do not say {name}")
        if canonical_json.dumps(details[name]) != canonical_json.dumps(
            header.get(name)
        ):
            raise Broken(f"the header's {name} is not what the first entry says")


def check_open(cap: int) -> None:
    """Checks that a cap may be changed. A cap of 0 closes an account whose entries were
    lost in a restore.

    Raises:
        Broken: the account is closed.
    """
    if not cap:
        raise Broken(
            "the account was closed, because entries were lost, and its cap was changed later"
        )


def check_reason(details: Json) -> None:
    """Checks that an entry of kind cap gives a reason in its details, and nothing else.

    Raises:
        Broken: the reason is missing, or the details hold another field.
    """
    if (
        not isinstance(details, dict)
        or set(details) != {"reason"}
        or not isinstance(details["reason"], str)
    ):
        raise Broken(
            "an entry of kind cap gives its reason in its details, and nothing else"
        )
    if not details["reason"]:
        raise Broken("an entry of kind cap gives no reason")


def is_of_first_form(details: Json) -> bool:
    """Whether the details of a dataset's entry of kind state list the cells of every
    scope.
    """
    state = details.get("state") if isinstance(details, dict) else None
    return isinstance(state, dict) and "form" not in state


def check_stated_state(
    entry: Link, actual: Mapping[str, "str | Json | Sequence[Json]"]
) -> None:
    """Compares a stated state with the recomputed one; the order of listed objects does
    not matter.

    Raises:
        Malformed: the entry does not state a state, or states an amount besides.
        Broken: the two states differ.
    """
    if entry.amount:
        raise json_fields.Malformed("an entry of kind state has an amount")
    fields = json_fields.fields(entry.details, {"state"}, "the details of a state")[
        "state"
    ]
    stated = json_fields.fields(fields, set(actual), "the state")
    for name, value in actual.items():
        if _sorted(stated[name]) != _sorted(value):
            raise Broken(f"the stated {name} differs from that of the entries before")


def _sorted(value: "Json | Sequence[Json]") -> list[bytes]:
    """Listed objects in any order; a list of texts, such as that of the uploads, in the
    stated order.
    """
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        return sorted(map(canonical_json.dumps, value))
    return [canonical_json.dumps(value)]  # type: ignore[arg-type]
