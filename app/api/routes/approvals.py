"""Defines the routes of approvals."""

from app.api.requests import By, Page, Router, raises
from app.core.errors import (
    BalanceMismatch,
    NotWaiting,
    SameSubmitter,
    SubmitterRevoked,
)
from app.services import dataset_rules
from app.wire.approvals import ApprovalList, ApprovalOut, DecisionIn

approval_routes = Router(prefix="/approvals", tags=["approvals"])


@approval_routes.get("")
def list_approvals(by: By, page: Page) -> ApprovalList:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest
    first.
    """
    return dataset_rules.list_approvals(*by, page)


@approval_routes.post(
    "/{job_id}",
)
@raises(SameSubmitter, NotWaiting, SubmitterRevoked, BalanceMismatch)
def decide_job(by: By, job_id: str, body: DecisionIn) -> ApprovalOut:
    """Approve or reject a waiting job: an owner other than its submitter decides. A
    rejection voids the reservation, as does the approval of a job whose submitter may not train any more.
    """
    return dataset_rules.decide(*by, job_id, body)
