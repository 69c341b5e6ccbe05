"""Implements ``grovekeeper approvals``: lists jobs that wait for an owner, approves and rejects them."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from app.cli.arguments import JobArgument
from app.cli.command import Remote, command
from app.cli.output import amount

app = typer.Typer(help="Decide about jobs that wait for an owner.", no_args_is_help=True)

ReasonOption = Annotated[str, typer.Option(help="A sentence that the control chain keeps.", show_default=False)]


@app.command("list")
@command
def list_approvals(call: Remote) -> None:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest first."""
    with call.client() as client:
        waiting = list(client.approvals())
    call.output.answer({"approvals": waiting})
    rows = [
        [job["job"], ", ".join(_prices(job)), job["algorithm"] or job["kind"], _submitter(job), job["expires_at"]]
        for job in waiting
    ]
    call.output.table(["job", "price", "what", "by", "expires"], rows, empty="no job waits for you")
    if waiting:
        call.output.hint(f"grovekeeper approvals approve {waiting[0]['job']} --reason REASON")


@app.command("approve")
@command
def approve(call: Remote, job_id: JobArgument, reason: ReasonOption) -> None:
    """Let a waiting job run. An owner other than its submitter decides."""
    _decide(call, job_id, "approve", reason)


@app.command("reject")
@command
def reject(call: Remote, job_id: JobArgument, reason: ReasonOption) -> None:
    """End a waiting job and void its reservation."""
    _decide(call, job_id, "reject", reason)


def _decide(call: Remote, job_id: str, decision: str, reason: str) -> None:
    with call.client() as client:
        decided = client.decide_job(job_id, decision, reason=reason)
    call.output.answer(decided)
    verb = "approved" if decision == "approve" else "rejected"
    call.output.say(f"{verb} job {job_id} ({', '.join(_prices(decided))}); it is now {decided['state']}")


def _prices(job: dict[str, Any]) -> list[str]:
    return [f"{amount(part['price'])} on {part['dataset_name']}" for part in job["parts"]]


def _submitter(job: Mapping[str, Any]) -> str:
    """The key that submitted a job, with its name where the reader may know it."""
    name, key_id = job["submitted_by_name"], str(job["submitted_by"])
    return key_id if name is None else f"{name} ({key_id})"
