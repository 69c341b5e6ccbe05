"""Defines the routes of the rules of a dataset."""

from fastapi import Response

from app.api.problems import JSON_BODY, documented
from app.api.requests import By, Precondition, Router, with_etag
from app.core.errors import (
    ChangedMeanwhile,
    DatasetDeleted,
    ErasureDue,
    NotFound,
    RoleMissing,
)
from app.services import dataset_rules
from app.wire.rules import RulesIn, RulesOut

rule_routes = Router(prefix="/datasets", tags=["datasets"])


@rule_routes.get("/{dataset}/rules", responses=documented(NotFound, RoleMissing))
def show_rules(by: By, dataset: str, response: Response) -> RulesOut:
    """Show the rules of the dataset, what is spent of its quotas, and a proposal of
    looser rules. For owners.
    """
    return _with_etag(response, dataset_rules.show_rules(*by, dataset))


@rule_routes.put(
    "/{dataset}/rules",
    responses=documented(
        NotFound, RoleMissing, DatasetDeleted, ErasureDue, ChangedMeanwhile, *JSON_BODY
    ),
)
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
