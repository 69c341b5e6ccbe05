"""Serves ``GET /ledger/{account}/deployment``: fills the record of a public registry with the facts of an account."""

import math
import re
from fractions import Fraction
from functools import cache
from importlib import resources
from typing import Any

from app.access.grants import SEE_LEDGER, Principal
from app.datasets import catalog
from app.datasets.catalog import Dataset
from app.ledger import external, populations, statements
from app.ledger.checkpoints import Signer
from app.privacy.accountants import amount_text, gdp, pure, zcdp
from app.privacy.adjacency import Adjacency
from app.registry import models
from app.services.installation import Installation
from app.services.ledger.balances import Account, detailed, find_account
from app.services.ledger.heads import checkpoint_of
from app.wire.ledger import AccountBalance, DeploymentOut

_VARIANTS = {pure.NAME: "Pure DP", zcdp.NAME: "Zero-concentrated DP", gdp.NAME: "Approximate DP"}
_SYMBOLS = {pure.NAME: "ε", zcdp.NAME: "ρ", gdp.NAME: "μ²"}
_REPLACEMENT = "Where one replaces another: ε = {epsilon}, δ = {delta}. "


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
        datasets = [account.id]
        if account.dataset is None:
            datasets = sorted(populations.of_ids(session, [account.id])[account.id].members)
        slugs = sorted({slug for dataset_id in datasets for slug in models.algorithms(session, dataset_id)})
        n_external = sum(external.count(session, dataset_id) for dataset_id in datasets)
        n_uploads = sum(len(catalog.epochs(session, dataset_id)) for dataset_id in datasets)
        head = checkpoint_of(session, account.id, statements.size(session, account.id))
    highest_cap = amount_text(limit.accountant, limit.amount)
    words = _words(account, balance) | {"highest_cap": highest_cap, "uploads": n_uploads, "algorithms": _titles(slugs)}
    document = _filled(_template(), words | {"source_type": "Static" if n_uploads <= 1 else "Dynamic"})
    document["record"]["deployment"]["privacy_loss"]["privacy_parameters"] = _parameters(balance, highest_cap)
    known = {"guarantee": balance.guarantee, "external_charges": n_external, "algorithms": slugs}
    document["facts"] |= known | {"checkpoint": signer.sign(head)}
    return DeploymentOut.model_validate({**account.facts, **document})


@cache
def _template() -> dict[str, Any]:
    import yaml  # takes 0.02 s of CPU, which a service that shows no such document need not spend

    text = resources.files(__package__).joinpath("deployment.yaml").read_text(encoding="utf-8")
    template: dict[str, Any] = yaml.safe_load(text)
    return template


def _filled(part: Any, words: dict[str, Any]) -> Any:
    """A copy of a part of the template, with the words in braces replaced."""
    if isinstance(part, dict):
        return {name: _filled(value, words) for name, value in part.items()}
    return part.format_map(words) if isinstance(part, str) else part


def _words(account: Account, balance: AccountBalance) -> dict[str, Any]:
    holder, replaced = account.holder, balance.guarantee.get("replace_one")
    protects_labels = holder.adjacency == Adjacency.LABEL.value
    unit = "Label of a row" if protects_labels else "Row"
    if holder.unit_column is not None:
        rows = f", at most {holder.max_rows} rows of each" if isinstance(holder, Dataset) else ""
        unit = f"All rows with one value of the column {holder.unit_column}{rows}"
    domain = "Tables of datasets that are declared to be about the same people, each with its declared schema."
    public = "The declarations of the member datasets."
    if account.dataset is not None:
        schema, partitions = account.dataset.row.schema, account.dataset.row.partitions
        domain = f"Tables with {len(schema['features'])} declared features and the label {schema['label']['name']}, "
        domain += "whose bounds and categories are public."
        public = "The declaration: names, bounds, categories and classes of columns. Declared public size: "
        public += f"{account.dataset.row.public_size or 'none'}. Partitions: "
        public += f"{', '.join(partition['name'] for partition in partitions) or 'none'}. "
        public += "Number and times of uploads and jobs."
    return balance.model_dump(include={"unit", "cap", "charged", "reserved", "remaining"}) | {
        "slug": re.sub(r"[^a-z0-9]+", "-", account.name.lower()).strip("-"),
        "variant": "Custom" if protects_labels else _VARIANTS[balance.accountant],
        "symbol": _SYMBOLS[balance.accountant],
        "domain": domain,
        "public": public,
        "privacy_unit": unit,
        "guarantee_text": balance.guarantee["text"],
        "replacement": _REPLACEMENT.format_map(replaced) if replaced else "",
    }


def _parameters(balance: AccountBalance, highest_cap: str) -> dict[str, float]:
    # The guarantee of a population has one pair, that of a dataset has pairs by adjacency.
    stated = balance.guarantee.get("label") or balance.guarantee.get("add_remove") or balance.guarantee
    parameters = {"epsilon": _at_least(stated["epsilon"])}
    if balance.accountant != pure.NAME:
        parameters["delta"] = _at_least(stated["delta"])
    if balance.accountant == zcdp.NAME:
        parameters["rho"] = _at_least(highest_cap)
    return parameters


def _at_least(text: str) -> float:
    """The least floating-point number that is not below an exact amount: a guarantee is rounded up."""
    number = float(text)
    return number if Fraction(number) >= Fraction(text) else math.nextafter(number, math.inf)


def _titles(slugs: list[str]) -> str:
    from app.forests import catalogue  # takes 0.1 s of CPU and 16 MB, with numpy

    pages: dict[str, Any] = {str(item["slug"]): item for item in catalogue.algorithms()}
    return "; ".join(f"{pages[slug]['title']} ({pages[slug]['about']['proof']})" for slug in slugs) or "no model yet"
