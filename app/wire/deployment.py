"""Defines the deployment document of an account: a record of the public registry, as far as the service knows it.

The names of the record's members are the registry's. What only the owner knows is no member; ``missing`` lists it.
"""

from typing import Literal

from app.wire.base import Answer, DecimalText, JsonObject


class RegistryBasic(Answer):
    data_product_type: Literal["Machine learning model"]


class RegistryVariant(Answer):
    variant_name: Literal["Pure DP", "Approximate DP", "Zero-concentrated DP", "Custom"]
    data_domain: str
    unprotected_quantities: str


class RegistryLoss(Answer):
    privacy_unit: str
    privacy_unit_details: str
    privacy_parameters: dict[Literal["epsilon", "delta", "rho"], float]
    privacy_parameters_details: str


class RegistryModel(Answer):
    model_name: Literal["Central"]
    model_name_details: str
    actors: str
    release_type: Literal["Many releases"]
    release_type_details: str
    data_source_type: Literal["Static", "Dynamic"]
    data_source_type_details: str
    access_type: Literal["Interactive"]
    access_type_details: str


class RegistryAccounting(Answer):
    composition: str
    post_processing: str


class RegistryImplementation(Answer):
    preprocessing_and_hyperparameter_tuning: str
    mechanisms: str


class RegistryDeployment(Answer):
    basic: RegistryBasic
    dp_variant: RegistryVariant
    privacy_loss: RegistryLoss
    deployment_model: RegistryModel
    accounting: RegistryAccounting
    implementation: RegistryImplementation


class RegistryRecord(Answer):
    """A record of the registry without what its owner fills in."""

    url_slug: str
    status: Literal["Draft"]
    tier: Literal[1, 2, 3]
    deployment: RegistryDeployment


class OwnersFields(Answer):
    """JSON pointers to the members of the record that the owner fills in."""

    required: list[str]
    optional: list[str]


class DeploymentFacts(Answer):
    """Facts beyond the record, in the order of the questions of NIST SP 800-226."""

    notice: str
    guarantee: JsonObject
    unit: str
    cap: DecimalText
    highest_cap: DecimalText
    charged: DecimalText
    reserved: DecimalText
    remaining: DecimalText
    external_charges: int
    algorithms: list[str]
    trust: str
    proofs: str
    audits: str
    checkpoint: str
    verification: str
    side_channels: list[str]
    security: str
    collection: str


class DeploymentOut(Answer):
    """The deployment document of an account.

    Attributes:
        form: the version of the registry's form that ``record`` follows.
    """

    account: str
    account_name: str
    kind: Literal["dataset", "population"]
    form: str
    record: RegistryRecord
    missing: OwnersFields
    facts: DeploymentFacts
