"""Serves checkpoints, proofs, the signer's public key and the record of a public
registry; runs the verifier.

The verifier shares no code with the service, so it runs as a program of its own. The
record is a form of a public registry of deployments, filled with the facts of an
account (``GET /ledger/{account}/deployment``).
"""

import json
import math
import re
import subprocess
import sys
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any, get_args

import yaml
from sqlalchemy.orm import Session

from app.access.grants import SEE_LEDGER, STATE_VERIFICATION, Principal, Role
from app.core import limits
from app.core.errors import InvalidRequest
from app.core.processes import scrubbed_environment
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs import queue
from app.ledger import (
    checkpoints,
    control,
    populations,
    statements,
    tables,
    verifications,
)
from app.ledger.checkpoints import Checkpoint, Log, Signer
from app.services.authorization import write_as
from app.services.installation import Installation
from app.services.ledger.balances import Account, detailed, find_account
from app.services.ledger.heads import checkpoint_of
from app.services.ledger.history import entries_up_to, json_lines
from app.wire.evidence import ConsistencyOut, DeploymentOut, InclusionOut, SignerOut
from app.wire.ledger import AccountBalance, Verdict, VerificationIn, VerificationList
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.number_words import grouped
from grovekeeper_forests import catalogue
from grovekeeper_forests.amounts import SYMBOLS
from grovekeeper_forests.privacy.accountants import gdp, pure, zcdp
from grovekeeper_forests.privacy.events import Adjacency


@dataclass(frozen=True)
class ProofRequest:
    """A request for a proof against the checkpoint over ``size`` entries, or over all
    entries where it is ``None``.

    Exactly one of ``sequence`` and ``from_size`` is given.

    Attributes:
        sequence: prove that the entry with this sequence is in the log.
        from_size: prove that the log begins with the log of this size.
        size: number of entries that the checkpoint covers.
    """

    sequence: int | None
    from_size: int | None
    size: int | None


def show_checkpoint(
    installation: Installation, principal: Principal, reference: str, *, signer: Signer
) -> str:
    """Shows the signed head of an account, as a note."""
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        head = checkpoint_of(session, account_id, statements.size(session, account_id))
    return signer.sign(head)


def show_proof(
    installation: Installation,
    principal: Principal,
    reference: str,
    proof: ProofRequest,
) -> InclusionOut | ConsistencyOut:
    """Shows a proof of inclusion or of consistency.

    Raises:
        InvalidRequest: the log has fewer entries.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        size = _in_range(
            "/size", proof.size, at_most=statements.size(session, account_id)
        )
        origin = checkpoints.origin(account_id)
        log = Log(session, account_id)
        if proof.sequence is None:
            from_size = _in_range("/from_size", proof.from_size, at_most=size)
            path = [digest.hex() for digest in log.consistency(from_size, size)]
            return ConsistencyOut(
                kind="consistency",
                origin=origin,
                from_size=from_size,
                size=size,
                path=path,
            )
        sequence = _in_range("/sequence", proof.sequence, at_most=size)
        (entry,) = tables.entries(session, account_id, after=sequence - 1, limit=1)
        return InclusionOut(
            kind="inclusion",
            origin=origin,
            size=size,
            sequence=sequence,
            entry=entry.to_json(),
            path=[digest.hex() for digest in log.inclusion(sequence, size)],
        )


def show_signer(signer: Signer) -> SignerOut:
    """Shows the public key that verifies the signatures of checkpoints; any key may
    read it.
    """
    return SignerOut(
        name=checkpoints.KEY_NAME,
        algorithm="ed25519",
        public_key=signer.public_pem,
        verifier_key=signer.verifier_key,
    )


def _in_range(field: str, value: int | None, *, at_most: int) -> int:
    if value is None:
        return at_most
    if not 1 <= value <= at_most:
        raise InvalidRequest.at(field, "out-of-range")
    return value


@dataclass(frozen=True)
class Verification:
    """What the verifier says about an export and its checkpoint.

    Attributes:
        result: the verifier's JSON; ``None`` where it was not run, because the export
            is too large or the time ran out.
    """

    entries: int
    checkpoint: str
    result: JsonObject | None


def verify_ledger(
    installation: Installation, principal: Principal, reference: str, *, signer: Signer
) -> Verification:
    """Runs the verifier over the export of an account, its signed head and the signer's
    public key, and keeps the result as the service's own.
    """
    with installation.database.read() as session:
        account_id = find_account(session, principal, reference, SEE_LEDGER).id
        header, last = statements.export_header(session, account_id)
        head = checkpoint_of(session, account_id, last)
    verification = _verified(installation, header, head, signer)
    result = verification.result
    if result is not None and result["verdict"] in get_args(Verdict):
        with write_as(installation, principal) as (session, _):
            stated = {
                "name": "",
                "verdict": result["verdict"],
                "entries": last if result["verified"] else None,
                "checkpoint": verification.checkpoint,
                "stated_at": transaction_time(session),
            }
            verifications.put(
                session, account_id, stated_by=verifications.SERVICE, stated=stated
            )
    return verification


def state_verification(
    installation: Installation,
    principal: Principal,
    reference: str,
    body: VerificationIn,
) -> VerificationList:
    """Keeps the result that an auditor's verifier had, as the auditor's word.

    Raises:
        InvalidRequest: the checkpoint or the last entry is not one of this account.
    """
    with write_as(installation, principal) as (session, principal):
        account_id = find_account(session, principal, reference, STATE_VERIFICATION).id
        has_failed = body.verdict == verifications.FAILED
        stated = {
            "name": principal.name,
            "verdict": body.verdict,
            "entries": None if has_failed else _covered(session, account_id, body),
            "checkpoint": None if has_failed else body.checkpoint,
            "stated_at": transaction_time(session),
        }
        verifications.put(
            session, account_id, stated_by=principal.key_id, stated=stated
        )
        listed = verifications.last(session, [account_id])[account_id]
    return VerificationList.model_validate({"verifications": listed})


def _covered(session: Session, account_id: str, body: VerificationIn) -> int:
    """The number of entries that a stated verification is about.

    Under ``VERIFIED`` these are the entries of the checkpoint: nothing signed stands
    behind later ones.
    """
    size = statements.size(session, account_id)
    if body.verdict.startswith("CONSISTENT"):
        last = _in_range("/entries", body.entries, at_most=size)
        [entry] = tables.entries(session, account_id, after=last - 1, limit=1)
        if entry.hash != body.last_hash:
            raise InvalidRequest.at("/last_hash", "not-of-this-ledger")
        return last
    note = body.checkpoint or ""
    head = checkpoints.read_checkpoint(account_id, note)
    if (
        head is None
        or head.size > size
        or not checkpoints.is_signed(note, checkpoints.pinned_keys(session))
        or Log(session, account_id).root(head.size) != head.root
    ):
        raise InvalidRequest.at("/checkpoint", "not-of-this-ledger")
    return head.size


def verify_acts(
    installation: Installation, principal: Principal, *, signer: Signer
) -> Verification:
    """Runs the verifier over the export of the control chain, its signed head and the
    signer's public key.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        header, last = control.export_header(session)
        head = checkpoint_of(session, control.CHAIN, last)
    return _verified(installation, header, head, signer)


def _verified(
    installation: Installation,
    header: JsonMapping,
    head: Checkpoint,
    signer: Signer,
) -> Verification:
    note, last = signer.sign(head), head.size
    if last > limits.MAX_VERIFIED_ENTRIES:
        return Verification(last, note, None)
    with (
        installation.spool() as export,
        installation.spool() as checkpoint,
        installation.spool() as key,
    ):
        entries = entries_up_to(installation, head.account_id, last)
        export.writelines(json_lines(header, entries))
        checkpoint.write(note.encode("utf-8"))
        key.write(signer.public_pem.encode("ascii"))
        for file in (export, checkpoint, key):
            # also writes what Python holds back; the verifier reads by the descriptor
            file.seek(0)
        result = _run(export.fileno(), checkpoint.fileno(), key.fileno())
        return Verification(last, note, result)


def _run(export: int, checkpoint: int, key: int) -> JsonObject | None:
    """The verifier's result for files without a name, which it opens by their
    descriptors.
    """
    try:
        ended = subprocess.run(
            [
                sys.executable,
                "-m",
                "grovekeeper_verifier",
                f"/dev/fd/{export}",
                "--checkpoint",
                f"/dev/fd/{checkpoint}",
                "--public-key",
                f"/dev/fd/{key}",
                "--json",
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=scrubbed_environment(),
            pass_fds=(export, checkpoint, key),
            timeout=limits.MAX_VERIFICATION_S,
            check=False,
        )
        result: JsonObject = json.loads(ended.stdout)
    except (subprocess.TimeoutExpired, ValueError):
        return None
    return result


_VARIANTS = {
    pure.NAME: "Pure DP",
    zcdp.NAME: "Zero-concentrated DP",
    gdp.NAME: "Approximate DP",
}
_REPLACEMENT = "Where one replaces another: ε = {epsilon}, δ = {delta}. "


def show_deployment(
    installation: Installation, principal: Principal, reference: str, *, signer: Signer
) -> DeploymentOut:
    """Shows the deployment document of an account. Nothing about the owner is stored."""
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        balance = detailed(session, principal, account, {})
        limit = statements.highest_cap(session, account.id)
        datasets = [account.id]
        if account.dataset is None:
            datasets = sorted(
                populations.of_ids(session, [account.id])[account.id].members
            )
        algorithms, n_external, n_uploads = set[str](), 0, 0
        for dataset_id in datasets:
            algorithms.update(queue.charged_algorithms(session, dataset_id))
            n_external += tables.n_external_reservations(session, dataset_id)
            n_uploads += len(catalog.epochs(session, dataset_id))
        slugs = sorted(algorithms)
        head = checkpoint_of(session, account.id, statements.size(session, account.id))
    highest_cap = limit.amount.text
    words = _words(account, balance) | {
        "highest_cap": highest_cap,
        "uploads": n_uploads,
        "algorithms": _titles(slugs),
        "product": "Machine learning model" if slugs else "Summary statistics",
    }
    words["source_type"] = "Static" if n_uploads <= 1 else "Dynamic"
    document = _filled(_template(), words)
    document["record"]["deployment"]["privacy_loss"]["privacy_parameters"] = (
        _parameters(balance, highest_cap)
    )
    known = {
        "guarantee": balance.guarantee,
        "external_charges": n_external,
        "algorithms": slugs,
    }
    document["facts"] |= known | {"checkpoint": signer.sign(head)}
    return DeploymentOut.model_validate({**account.facts, **document})


@cache
def _template() -> JsonObject:
    file = resources.files(__package__).joinpath("deployment.yaml")
    template: JsonObject = yaml.safe_load(file.read_text(encoding="utf-8"))
    return template


def _filled(part: Any, words: JsonObject) -> Any:
    """A copy of a part of the template, with the words in braces replaced."""
    if isinstance(part, dict):
        return {name: _filled(value, words) for name, value in part.items()}
    if isinstance(part, str):
        return part.format_map(words)
    return part


def _words(account: Account, balance: AccountBalance) -> JsonObject:
    holder = account.holder
    replaced = balance.guarantee.get("replace_one")
    protects_labels = holder.adjacency == Adjacency.LABEL.value
    unit = "Label of a row" if protects_labels else "Row"
    if holder.unit_column is not None:
        unit = f"All rows with one value of the column {holder.unit_column}"
        # members of a population have bounds of their own
        if isinstance(holder, catalog.Dataset):
            unit += f", at most {holder.max_rows} rows of each"
    domain = "Tables of datasets that are declared to be about the same people, each with its declared schema."
    public = "The declarations of the member datasets."
    if account.dataset is not None:
        schema = account.dataset.schema
        partitions = account.dataset.row.partitions
        names = " and ".join(label.name for label in schema.labels)
        labels = f"the label {names}"
        if schema.further_labels:
            labels = f"the labels {names}"
        n_features = len(schema.features)
        domain = f"Tables with {n_features} declared features and {labels}, "
        domain += "whose bounds and categories are public."
        public = "The declaration: names, bounds, categories and classes of columns. Declared public size: "
        names = ", ".join(partition["name"] for partition in partitions)
        size = account.dataset.row.public_size
        public += f"{grouped(size) if size else 'none'}. "
        public += f"Partitions: {names or 'none'}. "
        public += "Number and times of uploads and jobs."
    return balance.model_dump(
        include={"unit", "cap", "charged", "reserved", "remaining"}
    ) | {
        "slug": re.sub(r"[^a-z0-9]+", "-", account.name.lower()).strip("-"),
        "variant": "Custom" if protects_labels else _VARIANTS[balance.accountant],
        "symbol": SYMBOLS[balance.unit],
        "domain": domain,
        "public": public,
        "privacy_unit": unit,
        "guarantee_text": balance.guarantee["text"],
        "replacement": _REPLACEMENT.format_map(replaced) if replaced else "",
    }


def _parameters(balance: AccountBalance, highest_cap: str) -> dict[str, float]:
    # The guarantee of a population has one pair, that of a dataset has pairs by
    # adjacency.
    stated = (
        balance.guarantee.get("label")
        or balance.guarantee.get("add_remove")
        or balance.guarantee
    )
    parameters = {"epsilon": _at_least(stated["epsilon"])}
    if balance.accountant != pure.NAME:
        parameters["delta"] = _at_least(stated["delta"])
    if balance.accountant == zcdp.NAME:
        parameters["rho"] = _at_least(highest_cap)
    return parameters


def _at_least(text: str) -> float:
    """The least floating-point number that is not below an exact amount: a guarantee is
    rounded up.
    """
    number = float(text)
    if Fraction(number) >= Fraction(text):
        return number
    return math.nextafter(number, math.inf)


def _titles(slugs: list[str]) -> str:
    pages: JsonObject = {str(item["slug"]): item for item in catalogue.algorithms()}
    titles = []
    for slug in slugs:
        page = pages[slug]
        titles.append(f"{page['title']} ({page['about']['proof']})")
    return "; ".join(titles) or "no model yet"
