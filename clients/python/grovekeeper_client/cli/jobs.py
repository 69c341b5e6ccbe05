"""Implements ``grovekeeper jobs``, and prints quotes and jobs of every kind for the
commands that ask for them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial

import typer

from grovekeeper_client.cli.command import (
    Client,
    Group,
    JobArgument,
    Remote,
    Submission,
    Waiting,
    one_attempt,
    option,
)
from grovekeeper_client.cli.output import GIVEN_EARLIER, Output, amount
from grovekeeper_client.cli.problems import ExitCode
from grovekeeper_client.errors import FINISHED, ApiProblem, Unreachable, unfinished
from grovekeeper_common import scope_words
from grovekeeper_common.job_words import HOLDS, REASONS, place_in_words
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_common.recovered_shares import needed_epsilon

app = Group("Look at jobs, and cancel them.")

_DONE = {
    "train": "trained model",
    "profile": "released profile",
    "evaluation": "released evaluation",
    "statistics": "released statistics",
}
_SHOWN_BY = {
    "train": "models",
    "profile": "profiles",
    "evaluation": "evaluations",
    "statistics": "statistics",
}


@app.command("list")
def list_jobs(
    call: Remote,
    dataset: str | None = option("Of this dataset only."),
    algorithm: str | None = option("Of this algorithm only."),
    kind: str | None = option("train, profile, evaluation or statistics."),
    state: str | None = option(
        "waiting, queued, running, succeeded, failed or cancelled."
    ),
    submitter: str | None = option("Submitted by this key, by id or name."),
) -> None:
    """List jobs, newest first."""
    filters = {"dataset": dataset, "algorithm": algorithm, "kind": kind, "state": state}
    call.show_all(
        "jobs",
        lambda client: client.jobs(**filters, submitted_by=submitter),
        {
            "id": "id",
            "dataset": "dataset_name",
            "job": "what",
            "price": price_of,
            "state": _state,
            "charged": _charged,
            "made": made,
            "submitted by": lambda job: (
                job.get("submitted_by_name") or job["submitted_by"]
            ),
        },
    )


@app.command("show")
def show(
    call: Remote,
    job_id: JobArgument,
    waiting: Waiting,
) -> None:
    """Show a job."""
    output = call.output
    with call.client() as client:
        job = client.job(job_id)
        if waiting.wait:
            with _named(output, job_id):
                if job["state"] not in FINISHED:
                    job = follow(client, job_id, output, waiting)
                finish(output, job)
            return
    output.answer(job)
    output.facts(
        {
            "job": job["id"],
            "state": f"{job['state']}, preparing this machine, once"
            if job["preparing"]
            else job["state"],
            "queue": None
            if job["jobs_before"] is None
            else place_in_words(job["jobs_before"]),
            "held": HOLDS.get(job["held_by"], job["held_by"]),
            "reason": REASONS.get(job["reason"], job["reason"]),
            "kind": job["kind"],
            "trees": f"{job['trees_done']} of {job['n_trees']}"
            if job["n_trees"]
            else None,
            "dataset": job["dataset_name"],
            "runs": job["what"],
            "label": job.get("label"),
            "price": price_of(job),
            "charged": _charged(job),
            "purpose": job["purpose"],
            "submitted": f"{job['submitted_at']} by {job['submitted_by']}",
            "made": made(job),
        }
    )
    if made(job):
        output.hint(next_command(job))


def _charged(job: JsonMapping) -> str:
    return "yes, for good" if job["charged"] else "no"


def _state(job: JsonMapping) -> str:
    """The state of a job, and why it is not started."""
    held_by = job["held_by"]
    if held_by is None:
        return str(job["state"])
    return f"{job['state']}: {HOLDS.get(held_by, held_by)}"


@app.command("cancel")
def cancel(call: Remote, job_id: JobArgument) -> None:
    """Cancel a job. A job that has not started frees its reservation; a charge stays."""
    job = call.ask(lambda client: client.cancel_job(job_id))
    call.output.say(ended(job))


def submit(
    client: Client,
    send: Callable[..., JsonObject],
    output: Output,
    how: Submission,
    *,
    show: Callable[[Client, Output, JsonObject], None] | None = None,
) -> None:
    """Submits a job of any kind, prints what it reserved, and follows it to its end on
    request.

    Args:
        send: sends the request, with an ``idempotency_key``.
        show: prints the output of a job that succeeded, in place of the command that
            prints it.
    """
    with one_attempt(output, how.idempotency_key) as key:
        accepted = send(idempotency_key=key)
    job_id = accepted["job_id"]
    also = accepted["unlabelled"]
    second = (
        ""
        if also is None
        else f", and {amount(also['price'])} on {also['dataset_name']}"
    )
    with _named(output, job_id):
        output.say(
            f"accepted as job {job_id}, which reserved {amount(accepted['price'])}{second}"
        )
        if accepted["state"] == "waiting":
            output.say(
                "the job waits for the approval of an owner other than you, for at most a week"
            )
        if how.wait:
            job = follow(client, job_id, output, how)
            finish(output, job, show=show and partial(show, client, output))
            return
        output.answer(accepted)
        output.hint(f"grovekeeper jobs show {job_id} --wait")


@contextmanager
def _named(output: Output, job_id: str) -> Iterator[None]:
    """Names a job on stderr if the command ends before it has told the job's end: who
    repeated the command would pay again.
    """
    try:
        yield
    except (KeyboardInterrupt, ApiProblem, Unreachable, OSError) as error:
        # of the others the job may have ended
        goes_on = isinstance(error, KeyboardInterrupt | Unreachable)
        fate = "goes on" if goes_on else "was accepted"
        output.complain(
            f"the job {fate}; follow it with: grovekeeper jobs show {job_id} --wait"
        )
        raise


def follow(client: Client, job_id: str, output: Output, waiting: Waiting) -> JsonObject:
    """Waits for a job with a progress bar of finished trees, if it grows any; returns
    it in its last state.

    The wait ends where only another person can go on: an approval may take a week, and
    a freeze has no end.
    """
    from grovekeeper_client.cli import tables  # loads rich

    with tables.progress_of_job(hidden=output.as_json) as show:
        return client.wait_for_job(job_id, timeout=waiting.timeout, on_change=show)


def finish(
    output: Output,
    job: JsonObject,
    *,
    show: Callable[[JsonObject], None] | None = None,
) -> None:
    """Prints a finished job, then its output or the next command.

    A job that did not succeed ends with 1, and a job that goes on without the command
    with 6.
    """
    if output.as_json:
        output.json(job)
    elif job["state"] == "succeeded":
        # a newer service has kinds that this version does not know
        done = _DONE.get(job["kind"], job["kind"])
        output.say(
            f"{done} {made(job)}"
            + (f" ({job['algorithm']})" if job["algorithm"] else "")
        )
        if show is None:
            output.hint(next_command(job))
        else:
            show(job)
    if job["state"] not in FINISHED:
        output.complain(
            f"{unfinished(job)}; follow it with: grovekeeper jobs show {job['id']} --wait"
        )
        raise typer.Exit(ExitCode.GOES_ON)
    if job["state"] != "succeeded":
        output.complain(ended(job))
        raise typer.Exit(ExitCode.FAILED)


def ended(job: JsonMapping) -> str:
    """Why a job ended without an output, and whether its price is spent."""
    why = REASONS.get(job["reason"], job["reason"])
    spent = (
        f"{price_of(job)} spent for good" if job["charged"] else "nothing was charged"
    )
    return f"job {job['id']} {job['state']}: {why}; {spent}"


def price_of(paid: JsonMapping) -> str:
    """The price of a job or of its output, on each account that pays."""
    price = amount(paid["price"])
    second = paid.get("unlabelled")
    if second is None:
        return price
    return f"{price} on {paid['dataset_name']}, {amount(second['price'])} on {second['dataset_name']}"


def show_head(output: Output, kind: str, released: JsonObject) -> None:
    """Prints what is known of released numbers beside the numbers."""
    output.facts(
        {
            kind: released["id"],
            "name": released["name"],
            "dataset": released["dataset_name"],
            "label": released.get("label"),
            "released": released["created_at"],
            "price": price_of(released),
        }
    )


def made(job: JsonObject) -> str | None:
    """The id of a job's output, if the job has an output."""
    found: str | None = (
        job["model_id"]
        or job["profile_id"]
        or job["evaluation_id"]
        # which an earlier service does not have
        or job.get("statistics_id")
    )
    return found


def next_command(job: JsonObject) -> str:
    """The command that shows a job's output."""
    group = _SHOWN_BY.get(job["kind"])
    return (
        f"grovekeeper {group} show {made(job)}"
        if group
        else f"grovekeeper jobs show {job['id']}"
    )


def show_quote(
    output: Output,
    quote: JsonObject,
    *,
    what: str,
    receipt: bool,
    recover: int | None = None,
) -> None:
    """Prints a quote for people, both parts where a job has two.

    Args:
        what: names the output of the job.
        recover: the recovered share, in percent, whose ε is shown.
    """
    also = quote.get("unlabelled")
    _show_part(
        output, quote, what=what if also is None else f"{what}, its part with labels,"
    )
    if also is not None:
        _show_part(output, also, what=f"{what}, its part without labels,")
    if "expected_accuracy" in quote:
        output.say(expected(quote["expected_accuracy"], recover=recover))
        output.say()
    if receipt:
        for part in (quote, also):
            output.say(part["receipt"] if part is not None else "")
    if "parameters" in quote:
        output.parameters(quote["parameters"])
    if quote.get("profile"):
        output.say(f"note: {_of_profile(quote['profile'])}")
    output.warnings(quote)
    refusing = [
        part["dataset_name"]
        for part in (quote, also)
        if part is not None and not part["fits"]
    ]
    if refusing:
        output.hint(
            *(f"grovekeeper ledger show {name}" for name in dict.fromkeys(refusing))
        )


def _show_part(output: Output, part: JsonObject, *, what: str) -> None:
    """Prints what a job costs on one account, why, and what is left."""
    price = part["price"]
    why = part.get("why")
    if part.get("label"):
        what += f" of {part['label']}"
    output.say(f"{what} on {part['dataset_name']}" + (f": {why}" if why else ""))
    in_unit = (
        "no more, no less"
        if price["delta"] is None
        else f"{amount(price)}, no more, no less"
    )
    left = f"{part['remaining']} of {amount({**part, 'unit': price['unit']}, 'cap')}"
    if part["fits"]:
        rest = part["left_afterwards"]
        left += f"; after this job, {f'ε up to {rest}' if Fraction(rest) else 'nothing'} would fit"
    output.facts(
        {
            "  price": f"{_epsilon_delta(price)} ({in_unit})",
            "  left": left,
            "  largest ε that fits": part["largest_that_fits"]
            + ("" if part["fits"] else ": this job does not fit"),
            "  limited by": limit_in_words(part["limited_by"], part["population"]),
        }
    )
    output.odds(part["odds"], condition=GIVEN_EARLIER)
    if part["needs_approval"] and part["fits"]:
        output.say(
            f"The job would wait for the approval of another owner of {part['dataset_name']}."
        )
    output.say()


def _epsilon_delta(price: JsonMapping) -> str:
    return f"ε = {price['epsilon']}" + (
        "" if price["delta"] is None else f" at δ = {price['delta']}"
    )


def expected(expected: JsonMapping, *, recover: int | None) -> str:
    """What similar public tables recovered at this ε, and the ε at which they recovered
    the needed share.
    """
    sentences = [
        expected[name] for name in ("sentence", "spread", "note") if expected[name]
    ]
    if recover is not None and not expected["curve"]:
        sentences.append("What similar tables recovered was not measured.")
    elif recover is not None:
        epsilon = needed_epsilon(
            ((at["epsilon"], at["middle"]) for at in expected["curve"]), percent=recover
        )
        needed = f"from ε = {epsilon} on" if epsilon else "at no ε that was measured"
        sentences.append(f"Similar tables recovered {recover} % {needed}.")
    return " ".join(
        ["Expected accuracy:", *sentences, "This is no statement about your rows."]
    )


def _of_profile(reused: JsonMapping) -> str:
    """The numbers of a profile that a plan uses."""
    made_for = scope_words.cell(reused["scope"])
    profile = f"profile {reused['id']} of {reused['dataset_name']} ({made_for})"
    used = (
        f"uses the bins of {profile} at no cost"
        if reused["is_used"]
        else f"needs no bins of {profile}"
    )
    return (
        f"{used}."
        if reused["size"] is None
        else f"{used}; the rules assume {reused['size']} rows."
    )
