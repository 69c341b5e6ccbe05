"""Serves ``GET /ledger/{account}/deployment``: what the service knows for a public record of the deployment."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy.orm import Session

from app.access.roles import SEE_LEDGER, Principal
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import external, population_totals, statements
from app.ledger.account_facts import amount_text
from app.ledger.notes import Signer
from app.privacy.adjacency import Adjacency
from app.registry import models
from app.services.installation import Installation
from app.services.ledger.accounts import Account, find_account
from app.services.ledger.balances import detailed
from app.services.ledger.heads import checkpoint_of
from app.services.ledger.registry_form import FORM, RecordFacts, missing, record_of
from app.wire.deployment import DeploymentFacts, DeploymentOut
from app.wire.ledger import AccountBalance


def show_deployment(
    installation: Installation, principal: Principal, reference: str, *, signer: Signer
) -> DeploymentOut:
    """Shows the deployment document of an account. Nothing about the owner is stored.

    Raises:
        NotFound: no such account, or it is not visible to this key.
        RoleMissing: the key may not read the ledger.
    """
    with installation.database.read() as session:
        account = find_account(session, principal, reference, SEE_LEDGER)
        balance = detailed(session, principal, account, {})
        limit = statements.highest_cap(session, account.id)
        highest_cap = amount_text(limit.accountant, limit.amount)
        dataset_ids = _dataset_ids(session, account)
        slugs = sorted({slug for dataset_id in dataset_ids for slug in models.algorithms(session, dataset_id)})
        n_external = sum(external.count(session, dataset_id) for dataset_id in dataset_ids)
        n_uploads = sum(len(catalog.epochs(session, dataset_id)) for dataset_id in dataset_ids)
        head = checkpoint_of(session, account.id, statements.size(session, account.id))
    facts = RecordFacts(
        name=account.name,
        accountant=balance.accountant,
        cap=balance.cap,
        highest_cap=highest_cap,
        charged=balance.charged,
        reserved=balance.reserved,
        guarantee=balance.guarantee,
        protects_labels=account.holder.adjacency == Adjacency.LABEL.value,
        unit=_unit(account),
        domain=_domain(account),
        public=_public(account),
        uploads=n_uploads,
        algorithms=_described(slugs),
    )
    return DeploymentOut.model_validate(
        {
            **account.facts,
            "form": FORM,
            "record": record_of(facts),
            "missing": missing(),
            "facts": _beyond(balance, highest_cap, slugs, n_external, signer.sign(head)),
        }
    )


def _beyond(
    balance: AccountBalance, highest_cap: str, slugs: list[str], n_external: int, checkpoint: str
) -> DeploymentFacts:
    return DeploymentFacts(
        notice=_NOTICE,
        guarantee=balance.guarantee,
        unit=balance.unit,
        cap=balance.cap,
        highest_cap=highest_cap,
        charged=balance.charged,
        reserved=balance.reserved,
        remaining=balance.remaining,
        external_charges=n_external,
        algorithms=slugs,
        trust="Central: whoever operates the service, its database and its storage key can read the rows.",
        proofs="docs/proofs: one page for each mechanism and for the accounting.",
        audits=_AUDITS,
        checkpoint=checkpoint,
        verification="grovekeeper ledger export; then grovekeeper verify, with this checkpoint and the signer's key",
        side_channels=list(_SIDE_CHANNELS),
        security="Stored rows are encrypted with a key per dataset, which ends with the dataset (ADR 0034).",
        collection="How the rows were collected is the owner's to state.",
    )


def _dataset_ids(session: Session, account: Account) -> list[str]:
    if account.dataset is not None:
        return [account.id]
    return sorted(population_totals.of_population(session, account.id).members)


def _described(slugs: Sequence[str]) -> list[tuple[str, str]]:
    from app.forests import catalogue  # takes 0.1 s of CPU and 16 MB, with numpy

    known: dict[str, Any] = {str(item["slug"]): item for item in catalogue.algorithms()}
    return [(known[slug]["title"], known[slug]["about"]["proof"]) for slug in slugs]


def _unit(account: Account) -> str:
    holder = account.holder
    if holder.unit_column is None:
        return "Row"
    rows = f", at most {holder.max_rows} rows of each" if isinstance(holder, Dataset) else ""
    return f"All rows with one value of the column {holder.unit_column}{rows}"


def _domain(account: Account) -> str:
    if account.dataset is None:
        return "Tables of datasets that are declared to be about the same people, each with its declared schema."
    schema = account.dataset.row.schema
    n_features, label = len(schema["features"]), schema["label"]["name"]
    return f"Tables with {n_features} declared features and the label {label}, whose bounds and categories are public."


def _public(account: Account) -> str:
    if account.dataset is None:
        return "The declarations of the member datasets."
    row = account.dataset.row
    size = "none" if row.public_size is None else str(row.public_size)
    partitions = ", ".join(partition["name"] for partition in row.partitions) or "none"
    return (
        "The declaration: names, bounds, categories and classes of columns. "
        f"Declared public size: {size}. Partitions: {partitions}. Number and times of uploads and jobs."
    )


_NOTICE = (
    "Organised after the questions of NIST SP 800-226. This is no statement of conformity: nobody has assessed the "
    "deployment against a standard."
)
_AUDITS = (
    "Tests enumerate the laws of the mechanisms on small data and compare them with their claims; statistical audits "
    "of 400 to 5,000 runs look for gross errors, and may miss a factor of two (tests/privacy). No third party has "
    "audited this deployment."
)
_SIDE_CHANNELS = (
    "The durations of jobs and uploads depend on rows. GROVEKEEPER_RELEASE_INTERVAL_S coarsens those of jobs.",
    "A job that fails for lack of memory or time shows something about the number of rows.",
    "Processor time, memory, caches and sizes of files are visible to whoever runs the machine.",
)
