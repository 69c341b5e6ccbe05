"""Verifies the export of a control chain: the administrative acts of an installation.

Acts spend nothing. Their chain, sequence, times and checkpoints are checked like those
of an account, and the details of every act have exactly the fields of its kind.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from grovekeeper_verifier import json_fields
from grovekeeper_verifier.canonical_json import Json
from grovekeeper_verifier.chain import Chain, Link
from grovekeeper_verifier.checkpoints import Checkpoint
from grovekeeper_verifier.export_lines import Reading, check_logs
from grovekeeper_verifier.json_fields import Malformed

CONTROL = "control"
"""Name of the log in the header, and in the origin of its checkpoints."""

_HEADER_FIELDS = {"kind", "format", "log"}
_DETAILS = {
    "open": {"log"},
    "key-made": {"key", "roles"},
    "key-rotated": {"key"},
    "key-revoked": {"key"},
    "subject-admitted": {"key", "roles"},
    "subject-roles": {"key", "roles"},
    "grant-made": {"dataset", "key", "role"},
    "grant-removed": {"dataset", "key"},
    "dataset-declared": {"dataset"},
    "dataset-changed": {"dataset", "before", "after"},
    "dataset-deleted": {"dataset"},
    "unit-erased": {"dataset"},
    "upload-erased": {"dataset", "upload"},
    "cap-changed": {"account", "sequence"},
    "population-opened": {"population"},
    "population-joined": {"population", "dataset", "sequence"},
    "signer-pinned": {"verifier_key"},
    "storage-key-changed": {"storage_key"},
    "rules-changed": {"dataset", "rules", "proposed_by"},
    "rules-proposed": {"dataset", "rules"},
    "job-approved": {"job", "datasets", "reason"},
    "job-rejected": {"job", "datasets", "reason"},
    "history-lost": {"account", "entries"},
    "alias-moved": {"dataset", "alias", "model"},
    "alias-removed": {"dataset", "alias"},
    "model-deleted": {"dataset", "model"},
    "webhook-made": {"dataset", "webhook"},
    "webhook-rotated": {"dataset", "webhook"},
    "webhook-removed": {"dataset", "webhook"},
}
_OPTIONAL_DETAILS = {
    "dataset-declared": {"continues", "erased", "other_people"},
    "key-made": {"expires_at"},
    "key-rotated": {"expires_at"},
    "history-lost": {"head"},
    "unit-erased": {"record", "reference"},
}


@dataclass(frozen=True)
class ControlHeader:
    """The first line. The chain has no budget."""

    cap: int = 0
    places: int = 0


@dataclass(frozen=True)
class ControlSummary:
    """The result: number of acts by kind, the last entry, and the checkpoints that it
    was compared with.
    """

    kinds: Mapping[str, int]
    last: Link
    checkpoints: Sequence[Checkpoint]


class _Acts:
    """The chain after the acts so far."""

    header = ControlHeader()
    cap = 0

    def __init__(self, header: Json, checkpoints: Sequence[Checkpoint]) -> None:
        fields = json_fields.fields(header, _HEADER_FIELDS, "the header")
        json_fields.check_export(fields)
        if fields["log"] != CONTROL:
            raise Malformed("the header names another log")
        self.chain = Chain(CONTROL, checkpoints)
        self._columns: dict[str, str] = {}
        """By dataset: digest of its columns after the last change."""

    def take(self, value: Json) -> None:
        """Checks one act, and appends it."""
        act = _read_act(value)
        if act.kind == "dataset-changed":
            self._change_columns(act.details)
        self.chain.take(act, value)

    def _change_columns(self, details: Json) -> None:
        """Checks that a change begins at the columns of the change before it."""
        assert isinstance(details, dict), "the details of an act are checked"
        before, after = (
            json_fields.digest(details[name], name) for name in ("before", "after")
        )
        if before == after:
            raise Malformed("dataset-changed changes no columns")
        dataset = str(details["dataset"])
        if self._columns.get(dataset, before) != before:
            raise Malformed("before is not the after of the dataset's last change")
        self._columns[dataset] = after


def is_control(value: Json) -> bool:
    """Whether a first line is the header of a control chain."""
    return isinstance(value, dict) and "log" in value


def verify(
    lines: Iterable[bytes], checkpoints: Sequence[Checkpoint] = ()
) -> ControlSummary:
    """Verifies the export of a control chain."""
    check_logs(checkpoints, [CONTROL])
    reading = Reading(lines, lambda header: _Acts(header, checkpoints))
    return reading.read_to_the_end(lambda: _summary(reading.account.chain))


def _summary(chain: Chain) -> ControlSummary:
    assert chain.last is not None, "the end of the chain is checked"
    return ControlSummary(dict(chain.kinds), chain.last, chain.checkpoints)


def _read_act(value: Json) -> Link:
    fields = json_fields.entry_fields(value)
    kind = str(fields["kind"])
    if kind not in _DETAILS:
        raise Malformed("the entry's kind is not one of administrative acts")
    unused = (fields["amount"], fields["scope"], fields["event"], fields["job_id"])
    if unused != ("0", {}, None, None):
        raise Malformed(
            "an administrative act carries an amount, a scope, an event or a job"
        )
    stated = fields.get("details")
    optional = _OPTIONAL_DETAILS.get(kind, set()) & set(
        stated if isinstance(stated, dict) else ()
    )
    details = json_fields.fields(
        stated, _DETAILS[kind] | optional, f"the details of {kind}"
    )
    if kind == "open" and details != {"log": CONTROL}:
        raise Malformed("the first entry names another log")
    return Link(
        **json_fields.place(fields),
        kind=kind,
        amount=0,
        job_id=None,
        details=dict(details),
    )
