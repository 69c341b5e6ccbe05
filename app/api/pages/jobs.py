"""Serves the pages of jobs: the list, one job with live progress, and the jobs that
wait for an owner.
"""

from collections.abc import Mapping
from typing import Literal, get_args

from fastapi import Response

from app.api.pages import words
from app.api.pages.dataset_view import Tab, tabs_of
from app.api.pages.forms import Form, acts, checked, typed
from app.api.pages.rendering import Visit, Visitor
from app.api.requests import KeyFilter, NameFilter, Page, Router
from app.api.streams import job_events
from app.jobs.queue import JobFilter
from app.jobs.states import JobState
from app.services import dataset_rules, keys
from app.services.datasets import show
from app.services.jobs import show_jobs
from app.services.pagination import PageRequest
from app.wire.approvals import DecisionIn
from app.wire.jobs import JobKind
from app.wire.jobs import JobState as JobStateName
from grovekeeper_common.job_words import HOLDS, place_in_words

job_pages = Router(prefix="/ui/jobs")


@job_pages.get("")
def list_jobs(
    visit: Visitor,
    page: Page,
    dataset: NameFilter = None,
    state: JobStateName | None = None,
    kind: JobKind | Literal[""] = "",
    submitted_by: KeyFilter = None,
) -> Response:
    """Show the jobs of all datasets on which the key may train, or of one dataset,
    newest first; all of them, or those in a state, of a kind, of a key.
    """
    submitter = (submitted_by or "").strip()
    matching = JobFilter(dataset, kind or None, state=state)
    listed = show_jobs.list_jobs(
        *visit.by, page, matching, submitted_by=submitter or None
    )
    undecided = dataset_rules.list_approvals(*visit.by, PageRequest(limit=1)).approvals
    of = None
    if dataset is not None:
        of = show.show_dataset(*visit.by, dataset)
    fields = {
        "dataset": "" if of is None else of.id,
        "state": state or "",
        "kind": kind,
        "submitted_by": submitter,
    }
    return visit.page(
        "jobs",
        jobs=listed.jobs,
        following=listed.next,
        undecided=undecided,
        of=of,
        dataset_parts=tabs_of(visit, of.id, "Jobs") if of else [],
        fields=fields,
        kinds=get_args(JobKind),
        tabs=_tabs(show_jobs.count_jobs(*visit.by, dataset), fields),
    )


def _tabs(counted: Mapping[JobState, int], fields: Mapping[str, str]) -> list[Tab]:
    """Links to the jobs in each state, and to all of them. The numbers are those of a
    list that no other field filters.
    """
    of_all = {**fields, "state": ""}
    is_counted = not (fields["kind"] or fields["submitted_by"])
    tabs = [Tab("All", words.query_of(of_all), not fields["state"])]
    for state, number in counted.items():
        is_current = state.value == fields["state"]
        if number or is_current:
            query = words.query_of({**fields, "state": state.value})
            label = state.value.capitalize()
            if is_counted:
                label += f" {number}"
            tabs.append(Tab(label, query, is_current))
    return tabs


@job_pages.get("/{job_id}")
def show_job(visit: Visitor, job_id: str) -> Response:
    """Show one job; the script replaces its state while the job runs."""
    job = show_jobs.show_job(*visit.by, job_id)
    names = keys.names_of_keys(*visit.by, job.dataset, [job.submitted_by])
    return visit.page(
        "job",
        job=job,
        names=names,
        why_queued=HOLDS.get(job.held_by or "", place_in_words(job.jobs_before or 0)),
    )


@acts(job_pages, "/{job_id}/cancel", show_job)
def cancel_job(visit: Visit, form: Form, job_id: str) -> str:
    """Cancel a job and show it."""
    show_jobs.cancel_job(*visit.by, job_id)
    return f"/ui/jobs/{job_id}"


@job_pages.get("/{job_id}/events")
async def watch_job(visit: Visitor, job_id: str) -> Response:
    """Tell the script of a job's page about every change, until the job has ended."""
    return await job_events(
        visit.request, *visit.by, job_id, lambda _: b"data: changed\n\n"
    )


approval_pages = Router(prefix="/ui/approvals")


@approval_pages.get("")
def list_approvals(visit: Visitor, page: Page, decided: NameFilter = None) -> Response:
    """Show the jobs that wait for a decision for a dataset that the key owns, oldest
    first, and what was decided lately; above them, what was done about ``decided``.
    """
    listed = dataset_rules.list_approvals(*visit.by, page)
    return visit.page(
        "approvals",
        approvals=listed.approvals,
        following=listed.next,
        decisions_made=dataset_rules.list_decisions(*visit.by),
        decided=decided,
    )


@acts(
    approval_pages,
    "/{job_id}",
    lambda refused, **_: list_approvals(refused, PageRequest()),
)
def decide(visit: Visit, form: Form, job_id: str) -> str:
    """Approve or reject a waiting job."""
    body = checked(
        DecisionIn,
        {name: typed(form, name) for name in ("decision", "reason")},
    )
    dataset_rules.decide(*visit.by, job_id, body)
    return f"/ui/approvals?decided={job_id}"
