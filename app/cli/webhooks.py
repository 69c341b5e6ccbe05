"""Implements ``grovekeeper webhooks``: registers addresses that are told about a dataset, lists and removes them."""

from typing import Annotated

import typer

from app.cli.arguments import DatasetArgument
from app.cli.command import Remote, command

app = typer.Typer(help="Send events about jobs, refusals and low budgets to other programs.", no_args_is_help=True)


@app.command("add")
@command
def add(
    call: Remote,
    dataset: DatasetArgument,
    address: Annotated[str, typer.Argument(help="A public https address.", show_default=False)],
    event: Annotated[
        list[str] | None,
        typer.Option(help="job.queued, job.started, job.ended (default) or request.refused; may be repeated."),
    ] = None,
    below: Annotated[
        str | None,
        typer.Option(help="Also when less than this share of the cap remains, such as 0.2.", show_default=False),
    ] = None,
) -> None:
    """Register an address. The secret of its signatures is shown once."""
    events = [*(event or ["job.ended"]), *(["budget.low"] if below is not None else [])]
    with call.client() as client:
        answer = client.create_webhook(dataset, address, events, threshold=below)
    call.output.answer(answer)
    call.output.say(f"{answer['id']} is told about {', '.join(answer['events'])}")
    call.output.say(f"secret, shown this once: {answer['secret']}")
    call.output.hint(f"grovekeeper webhooks list {dataset}")


@app.command("list")
@command
def list_webhooks(call: Remote, dataset: DatasetArgument) -> None:
    """List the webhooks of a dataset, and how many events wait for each."""
    with call.client() as client:
        listed = client.webhooks(dataset)
    call.output.answer({"webhooks": listed})
    rows = [
        [item["id"], item["url"], ", ".join(item["events"]), item["threshold"], item["waiting"], item["failures"]]
        for item in listed
    ]
    call.output.table(["id", "address", "events", "below", "waiting", "failures"], rows, empty="no webhooks")


@app.command("remove")
@command
def remove(
    call: Remote,
    dataset: DatasetArgument,
    webhook: Annotated[str, typer.Argument(help="Id of the webhook.", show_default=False)],
) -> None:
    """Remove a webhook. Events that wait for it are dropped."""
    with call.client() as client:
        client.delete_webhook(dataset, webhook)
    call.output.answer({"webhook": webhook, "removed": True})
    call.output.say(f"removed {webhook}")
