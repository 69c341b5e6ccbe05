"""Defines the routes of ``/approvals``: jobs that wait for the decision of an owner."""

from fastapi import APIRouter

from app.api import problems
from app.api.requests import BodyRoute, Caller, CurrentInstallation, Page
from app.core.errors import BalanceMismatch, NotFound, NotWaiting, RoleMissing, SameSubmitter
from app.services import approvals
from app.wire.rules import ApprovalList, ApprovalOut, DecisionIn

router = APIRouter(prefix="/approvals", tags=["approvals"], route_class=BodyRoute)


@router.get("", operation_id="list_approvals", responses=problems.documented())
def list_approvals(installation: CurrentInstallation, caller: Caller, page: Page) -> ApprovalList:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest first."""
    return approvals.list_approvals(installation, caller, page)


@router.post(
    "/{job_id}",
    operation_id="decide_job",
    responses=problems.documented(
        NotFound, RoleMissing, SameSubmitter, NotWaiting, BalanceMismatch, *problems.JSON_BODY
    ),
)
def decide_job(installation: CurrentInstallation, caller: Caller, job_id: str, body: DecisionIn) -> ApprovalOut:
    """Approve or reject a waiting job: an owner other than its submitter decides. A rejection voids the reservation."""
    return approvals.decide(installation, caller, job_id, body)
