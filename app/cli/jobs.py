"""Implements ``grovekeeper jobs``: lists, shows, follows and cancels jobs."""

from typing import Annotated

import typer

from app.cli.arguments import JobArgument
from app.cli.command import Remote, command
from app.cli.training import ended, finish, follow, made, next_command, price_of
from app.jobs.states import ENDED
from grovekeeper_client.errors import REASONS

app = typer.Typer(help="Look at jobs, and cancel them.", no_args_is_help=True)


@app.command("list")
@command
def list_jobs(
    call: Remote,
    dataset: Annotated[str | None, typer.Option(help="Of this dataset only.")] = None,
    algorithm: Annotated[str | None, typer.Option(help="Of this algorithm only.")] = None,
    state: Annotated[str | None, typer.Option(help="waiting, queued, running, succeeded, failed or cancelled.")] = None,
) -> None:
    """List jobs, newest first."""
    with call.client() as client:
        jobs = list(client.jobs(dataset=dataset, algorithm=algorithm, state=state))
    call.output.answer({"jobs": jobs})
    rows = [
        [job["id"], job["dataset_name"], job["algorithm"] or job["kind"], price_of(job), job["state"], made(job)]
        for job in jobs
    ]
    call.output.table(["id", "dataset", "job", "price", "state", "made"], rows, empty="no jobs")


@app.command("show")
@command
def show(
    call: Remote,
    job_id: JobArgument,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the job, with a progress bar.")] = False,
) -> None:
    """Show a job."""
    output = call.output
    with call.client() as client:
        job = client.job(job_id)
        if wait:
            finish(output, job if job["state"] in ENDED else follow(client, job_id, output))
            return
    output.answer(job)
    output.facts(
        {
            "job": job["id"],
            "state": f"{job['state']}, preparing this machine, once" if job["preparing"] else job["state"],
            "reason": REASONS.get(job["reason"], job["reason"]),
            "kind": job["kind"],
            "trees": f"{job['trees_done']} of {job['n_trees']}" if job["n_trees"] else None,
            "dataset": job["dataset_name"],
            "algorithm": job["algorithm"],
            "price": price_of(job),
            "charged": "yes, for good" if job["charged"] else "no",
            "purpose": job["purpose"],
            "submitted": f"{job['submitted_at']} by {job['submitted_by']}",
            "made": made(job),
        }
    )
    if made(job):
        output.hint(next_command(job))


@app.command("cancel")
@command
def cancel(call: Remote, job_id: JobArgument) -> None:
    """Cancel a job. A job that has not started frees its reservation; a charge stays."""
    with call.client() as client:
        job = client.cancel_job(job_id)
    call.output.answer(job)
    call.output.say(ended(job))
