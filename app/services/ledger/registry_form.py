"""Maps the public facts of an account to a record of the public registry of differentially private deployments.

The registry is that of OpenDP (records in YAML with a closed form). Its names have changed before, so this module alone
knows them, with the version :data:`FORM`. A member that only the owner knows is never invented
(:data:`OWNERS_REQUIRED`, :data:`OWNERS_OPTIONAL`).
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from app.privacy.accountants import gdp, pure, zcdp
from app.wire.deployment import (
    OwnersFields,
    RegistryAccounting,
    RegistryBasic,
    RegistryDeployment,
    RegistryImplementation,
    RegistryLoss,
    RegistryModel,
    RegistryRecord,
    RegistryVariant,
)

FORM = "2026-09"
"""The registry's form, by the month of the newest records that this mapping was compared with."""

OWNERS_REQUIRED = (
    "/deployment/basic/name",
    "/deployment/basic/data_curators",
    "/deployment/basic/description",
    "/deployment/basic/intended_use",
    "/deployment/basic/data_product_region",
    "/deployment/basic/publication_date",
    "/deployment/administrative/registry_authors",
)
OWNERS_OPTIONAL = (
    "/deployment/basic/data_product_sector",
    "/deployment/implementation/justification",
    "/deployment/administrative/sources",
    "/deployment/administrative/notes",
)
_VARIANTS: dict[str, Literal["Pure DP", "Approximate DP", "Zero-concentrated DP"]] = {
    pure.NAME: "Pure DP",
    zcdp.NAME: "Zero-concentrated DP",
    gdp.NAME: "Approximate DP",
}
_NAMES = {pure.NAME: "ε", zcdp.NAME: "ρ", gdp.NAME: "μ²"}


@dataclass(frozen=True)
class RecordFacts:
    """What a record says about an account.

    Attributes:
        name: of the dataset or population.
        accountant: of the account.
        amounts: cap, highest cap, charged and reserved amount, as sentences have them.
        guarantee: the printed guarantee of the account (:mod:`app.privacy.guarantees`).
        protects_labels: whether labels alone are protected.
        unit: what the guarantee protects, in words.
        domain: the tables that the declaration admits, in words.
        public: the declared public facts, in words.
        uploads: number of uploads so far.
        algorithms: title and page of proof of every algorithm that has trained a model.
    """

    name: str
    accountant: str
    cap: str
    highest_cap: str
    charged: str
    reserved: str
    guarantee: dict[str, Any]
    protects_labels: bool
    unit: str
    domain: str
    public: str
    uploads: int
    algorithms: Sequence[tuple[str, str]]


def missing() -> OwnersFields:
    """The members that the owner fills in."""
    return OwnersFields(required=list(OWNERS_REQUIRED), optional=list(OWNERS_OPTIONAL))


def record_of(facts: RecordFacts) -> RegistryRecord:
    """The record, of tier 2: tier 3 needs the owner's justification."""
    return RegistryRecord(
        url_slug=re.sub(r"[^a-z0-9]+", "-", facts.name.lower()).strip("-"),
        status="Draft",
        tier=2,
        deployment=RegistryDeployment(
            basic=RegistryBasic(data_product_type="Machine learning model"),
            dp_variant=RegistryVariant(
                variant_name="Custom" if facts.protects_labels else _VARIANTS[facts.accountant],
                data_domain=facts.domain,
                unprotected_quantities=facts.public,
            ),
            privacy_loss=_loss(facts),
            deployment_model=_model(facts),
            accounting=RegistryAccounting(composition=_COMPOSITION, post_processing=_POST_PROCESSING),
            implementation=RegistryImplementation(
                preprocessing_and_hyperparameter_tuning=_PREPROCESSING, mechanisms=_mechanisms(facts)
            ),
        ),
    )


def _loss(facts: RecordFacts) -> RegistryLoss:
    return RegistryLoss(
        privacy_unit="Label of a row" if facts.protects_labels else facts.unit,
        privacy_unit_details=facts.guarantee["text"],
        privacy_parameters=_parameters(facts),
        privacy_parameters_details=(
            f"Lifetime cap {facts.cap} {_NAMES[facts.accountant]}; highest cap ever {facts.highest_cap}; "
            f"charged {facts.charged}, reserved {facts.reserved} at the tightest cell. "
            f"{_of_replacement(facts.guarantee)}The budget is never renewed."
        ),
    )


def _parameters(facts: RecordFacts) -> dict[Literal["epsilon", "delta", "rho"], float]:
    # The guarantee of a population has one pair, that of a dataset has pairs by adjacency.
    stated = facts.guarantee.get("label") or facts.guarantee.get("add_remove") or facts.guarantee
    parameters: dict[Literal["epsilon", "delta", "rho"], float] = {"epsilon": _at_least(stated["epsilon"])}
    if facts.accountant != pure.NAME:
        parameters["delta"] = _at_least(stated["delta"])
    if facts.accountant == zcdp.NAME:
        parameters["rho"] = _at_least(facts.highest_cap)
    return parameters


def _at_least(text: str) -> float:
    """The least floating-point number that is not below an exact amount: a guarantee is rounded up."""
    number = float(text)
    return number if Fraction(number) >= Fraction(text) else math.nextafter(number, math.inf)


def _of_replacement(guarantee: dict[str, Any]) -> str:
    replaced = guarantee.get("replace_one")
    if replaced is None:
        return ""
    return f"Where one replaces another: ε = {replaced['epsilon']}, δ = {replaced['delta']}. "


def _model(facts: RecordFacts) -> RegistryModel:
    return RegistryModel(
        model_name="Central",
        model_name_details="The service holds the rows, and only what a job releases leaves it.",
        actors=(
            "The owner uploads rows and sets the cap. Analysts choose jobs and read releases, predictors call models, "
            "auditors read the ledger. The operator of the service can read rows."
        ),
        release_type="Many releases",
        release_type_details="Models, profiles and evaluations draw on one lifetime budget until it is spent.",
        data_source_type="Static" if facts.uploads <= 1 else "Dynamic",
        data_source_type_details=f"Uploads so far: {facts.uploads}. An upload never renews the budget of earlier rows.",
        access_type="Interactive",
        access_type_details=(
            "Analysts choose each job after they have seen earlier releases. One budget counts for all analysts "
            "together, so analysts who collude learn no more than the guarantee allows."
        ),
    )


def _mechanisms(facts: RecordFacts) -> str:
    used = "; ".join(f"{title} ({proof})" for title, proof in facts.algorithms) or "no model yet"
    return (
        f"Algorithms of the models so far: {used}. Every draw is an exact integer sampler (docs/proofs/samplers.md) on "
        "a cryptographic generator, added to exact integers; values of rows are compared with bounds in floating point "
        "before that. Running times depend on rows."
    )


_COMPOSITION = (
    "Sequential over jobs on the same cells, parallel over declared disjoint cells, adaptive: a filter refuses a job "
    "that would exceed the cap, whatever was released before (docs/proofs/accounting.md). A charge is committed before "
    "the first read of a row and is never given back after it."
)
_POST_PROCESSING = "Predictions, model files and exports are functions of releases, and cost nothing."
_PREPROCESSING = (
    "Values are clamped to declared bounds and mapped to declared categories. Bins and parameters come from public "
    "facts or from charged releases. Choosing among models on private rows is a charged evaluation."
)
