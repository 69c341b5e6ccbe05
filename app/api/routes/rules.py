"""Defines the routes of the rules of a dataset."""

from fastapi import Response

from app.api.requests import By, Precondition, Router, raises, with_etag
from app.core.errors import (
    DatasetDeleted,
    ErasureDue,
)
from app.services import dataset_rules
from app.wire.rules import RulesIn, RulesOut

rule_routes = Router(prefix="/datasets", tags=["datasets"])


@rule_routes.get("/{dataset}/rules")
def show_rules(by: By, dataset: str, response: Response) -> RulesOut:
    """Show the rules of the dataset, what is spent of its quotas, and a proposal of
    looser rules. For owners.
    """
    return _with_etag(response, dataset_rules.show_rules(*by, dataset))


@rule_routes.put(
    "/{dataset}/rules",
)
@raises(DatasetDeleted, ErasureDue)
def change_rules(
    by: By, dataset: str, body: RulesIn, condition: Precondition, response: Response
) -> RulesOut:
    """Replace the rules of the dataset. Looser rules are in force once a second owner
    or an admin sends them.
    """
    return _with_etag(
        response, dataset_rules.change_rules(*by, dataset, body, condition=condition)
    )


def _with_etag(response: Response, rules: RulesOut) -> RulesOut:
    spent = [quota.spent for quota in rules.quotas]
    return with_etag(response, rules, rules.etag, spent)
