"""Implements ``grovekeeper rules``, ``approvals`` and ``webhooks``: what owners set on
a dataset beside its cap.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

import typer

from grovekeeper_client.cli.command import (
    Client,
    DatasetArgument,
    Group,
    JobArgument,
    Remote,
    WrongUse,
    YesOption,
    argument,
    command,
    confirm,
    given,
    names_of_keys,
    option,
)
from grovekeeper_client.cli.jobs import price_of
from grovekeeper_client.cli.new_secrets import SaveOption, hand_over, secret_file
from grovekeeper_client.cli.output import Output, amount, key_in_words
from grovekeeper_common.job_words import HOLDS
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.limit_words import is_used_up, limit_in_words

app = Group("Limit what a dataset admits below its cap.")

_NO_RULE: JsonMapping = {
    "largest_job": None,
    "approval_above": None,
    "quotas": [],
    "frozen": False,
    "erase_rows_at": None,
}


@app.command("show")
def show(call: Remote, dataset: DatasetArgument) -> None:
    """Show the rules of a dataset, what is spent of its quotas, and a proposal."""
    with call.client() as client:
        rules = client.rules(dataset)
        names = names_of_keys(client, dataset) if rules["quotas"] else {}
    _print(call.output, rules, names)


@dataclass(frozen=True)
class RuleOptions:
    """Rules to change. A rule that is not named stays."""

    largest_job: str | None = option("Largest amount of one job.")
    approval_above: str | None = option(
        "Amount of a key above which its jobs wait for another owner."
    )
    quota: list[str] | None = option(
        "KEY=AMOUNT or KEY,KEY=AMOUNT, a key by id, or by name if it has a role here; all quotas, may be "
        "repeated."
    )
    frozen: bool | None = option("Admit and start nothing.", "--freeze/--unfreeze")
    erase_rows_at: str | None = option("Time with its zone: 2030-12-31T00:00:00Z.")
    without: list[str] | None = option(
        "Remove largest-job, approval-above, quotas or erase-rows-at."
    )

    def to_json(self) -> JsonObject:
        """The changed members of the body.

        Raises:
            WrongUse: a quota is malformed, a removed rule does not exist, or no rule is
                named.
        """
        changed = given(
            largest_job=self.largest_job,
            approval_above=self.approval_above,
            quotas=None if self.quota is None else list(map(_quota, self.quota)),
            frozen=self.frozen,
            erase_rows_at=self.erase_rows_at,
        ) | _removed(self.without)
        if not changed:
            raise WrongUse("name at least one rule")
        return changed


@app.command("set")
def set_rules(call: Remote, dataset: DatasetArgument, options: RuleOptions) -> None:
    """Change some rules; the others stay. Amounts are in the account's unit. Looser
    rules need a second owner.
    """
    changed = options.to_json()
    with call.client() as client:
        before = client.rules(dataset)
        rules = client.change_rules(
            dataset, _body(before) | changed, etag=before["etag"]
        )
    _print(call.output, rules)


@app.command("confirm")
def confirm_rules(
    call: Remote, dataset: DatasetArgument, yes: YesOption = False
) -> None:
    """Put looser rules in force that another owner proposed."""
    with call.client() as client:
        rules = client.rules(dataset)
        proposal = rules["proposal"]
        if proposal is None:
            raise WrongUse(f"nobody proposes other rules for {dataset}")
        if not call.as_json:
            call.output.facts(_facts(proposal["rules"] | {"unit": rules["unit"]}))
        confirm(call.output, f"Put these rules of {proposal['by']} in force?", yes=yes)
        rules = client.change_rules(
            dataset, _body(proposal["rules"]), etag=rules["etag"]
        )
    _print(call.output, rules)


def _print(
    output: Output, rules: JsonObject, names: Mapping[str, str] | None = None
) -> None:
    output.answer(rules)
    output.say(f"rules of {rules['dataset_name']}")
    output.facts(_facts(rules))
    for quota in rules["quotas"]:
        spent = amount({**quota, "unit": rules["unit"]}, "spent")
        keys = [key_in_words(key, names or {}) for key in quota["keys"]]
        output.say(f"{', '.join(keys)}: {spent} of {quota['cap']} spent")
    proposal = rules["proposal"]
    if proposal is not None:
        output.say()
        output.say(
            f"{proposal['by']} proposes looser rules, which another owner or an admin can put in force:"
        )
        output.facts(_facts(proposal["rules"] | {"unit": rules["unit"]}))
        output.hint(f"grovekeeper rules confirm {rules['dataset_name']}")


def _facts(rules: JsonMapping) -> dict[str, object]:
    """The rules as names and values; a rule that sets no limit says so."""
    return {
        "largest job": "no limit"
        if rules["largest_job"] is None
        else amount(rules, "largest_job"),
        "approval above": "never"
        if rules["approval_above"] is None
        else amount(rules, "approval_above"),
        "quotas": "; ".join(
            f"{','.join(quota['keys'])}={quota['cap']}" for quota in rules["quotas"]
        )
        or "none",
        "frozen": "yes: nothing is admitted or started" if rules["frozen"] else "no",
        "rows erased at": rules["erase_rows_at"] or "no date",
    }


def _body(rules: JsonMapping) -> JsonObject:
    """The body of ``PUT /datasets/{id}/rules``, from an answer."""
    quotas = [{"keys": quota["keys"], "cap": quota["cap"]} for quota in rules["quotas"]]
    return {name: rules[name] for name in _NO_RULE} | {"quotas": quotas}


def _removed(names: list[str] | None) -> JsonObject:
    """The rules that were named as removed, without their limits."""
    removed = {name: name.replace("-", "_") for name in names or ()}
    for name, member in removed.items():
        if member not in _NO_RULE or member == "frozen":
            raise WrongUse(
                f"there is no rule {name}; name largest-job, approval-above, quotas or erase-rows-at"
            )
    return {member: _NO_RULE[member] for member in removed.values()}


def _quota(text: str) -> JsonObject:
    keys, separator, cap = text.rpartition("=")
    if not (keys and separator and cap):
        raise WrongUse("a quota is given as KEY=AMOUNT, or as KEY,KEY=AMOUNT")
    return {"keys": keys.split(","), "cap": cap.strip()}


approval_commands = Group("Decide about jobs that wait for an owner.")

ReasonOption = Annotated[
    str, typer.Option(help="A sentence that the control chain keeps.")
]


@command
def attention(call: Remote) -> None:
    """Show what needs you: decisions, failed jobs, keys that end, full budgets."""
    output = call.output
    found = call.ask(lambda client: client.attention())
    needs = [
        [
            f"decide about {job['job']}, {job['what']}",
            ", ".join(_prices(job)),
            _submitter(job),
        ]
        for job in found["approvals"]
    ]
    needs += [
        [
            f"decide about rules of {proposal['dataset_name']}",
            "looser than now",
            proposal["by_name"] or proposal["by"],
        ]
        for proposal in found["proposals"]
    ]
    needs += [
        [
            f"{job['id']}, {job['what']}, is not started",
            HOLDS.get(job["held_by"], job["held_by"]),
            _submitter(job),
        ]
        for job in found.get("held", [])
    ]
    needs += [
        [
            f"{job['id']}, {job['what']}, failed",
            price_of(job) if job["charged"] else "",
            _submitter(job),
        ]
        for job in found["failed"]
    ]
    needs += [
        [
            f"no job on all of {budget['dataset_name']} fits any more",
            f"limited by {limit_in_words(budget['limited_by'], budget['population'])}",
            "",
        ]
        for budget in filter(is_used_up, found["budgets"])
    ]
    needs += [
        [f"verify the ledger of {ledger['account_name']}", "", ""]
        for ledger in found.get("ledgers", [])
    ]
    needs += [
        [f"{key['name']} ends", key["expires_at"], key["id"]] for key in found["keys"]
    ]
    output.table(["what", "", "by"], needs, empty="nothing needs you")
    budgets = [
        [
            budget["dataset_name"],
            amount(budget["account"], "remaining"),
            budget["largest_that_fits"],
        ]
        for budget in found["budgets"]
    ]
    output.table(["dataset", "left", "largest ε"], budgets, empty="no dataset")


@approval_commands.command("list")
def list_approvals(call: Remote) -> None:
    """List the jobs that wait for a decision about a dataset that the key owns, oldest
    first.
    """
    waiting = call.show_all(
        "approvals",
        lambda client: client.approvals(),
        {
            "job": "job",
            "price": _prices,
            "what": "what",
            "by": _submitter,
            "expires": "expires_at",
        },
        empty="no job waits for you",
    )
    if waiting:
        call.output.hint(
            f"grovekeeper approvals approve {waiting[0]['job']} --reason REASON"
        )


@approval_commands.command("approve")
def approve(call: Remote, job_id: JobArgument, reason: ReasonOption) -> None:
    """Let a waiting job run. An owner other than its submitter decides."""
    _decide(call, job_id, "approve", reason)


@approval_commands.command("reject")
def reject(call: Remote, job_id: JobArgument, reason: ReasonOption) -> None:
    """End a waiting job and void its reservation."""
    _decide(call, job_id, "reject", reason)


def _decide(call: Remote, job_id: str, decision: str, reason: str) -> None:
    decided = call.ask(
        lambda client: client.decide_job(job_id, decision, reason=reason)
    )
    verb = "approved" if decision == "approve" else "rejected"
    call.output.say(
        f"{verb} job {job_id} ({', '.join(_prices(decided))}); it is now {decided['state']}"
    )


def _prices(job: JsonObject) -> list[str]:
    return [
        f"{amount(part['price'])} on {part['dataset_name']}" for part in job["parts"]
    ]


def _submitter(job: JsonMapping) -> str:
    """The key that submitted a job, with its name where the reader may know it."""
    name = job["submitted_by_name"]
    key_id = str(job["submitted_by"])
    return key_id if name is None else f"{name} ({key_id})"


WebhookArgument = Annotated[str, argument("Id of the webhook.")]

webhook_commands = Group(
    "Send events about jobs, refusals and low budgets to other programs."
)


@webhook_commands.command("add")
def add(
    call: Remote,
    dataset: DatasetArgument,
    address: Annotated[str, argument("A public https address.")],
    event: list[str] | None = option(
        "job.queued, job.started, job.ended (default) or request.refused; may be repeated."
    ),
    below: str | None = option(
        "Also when less than this share of the cap remains, such as 0.2."
    ),
    save: SaveOption = None,
) -> None:
    """Register an address. The secret of its signatures is shown once, or saved to a
    file.
    """
    events = [*(event or ["job.ended"]), *(["budget.low"] if below is not None else [])]
    with secret_file(save) as stream:
        with call.client() as client:
            answer = client.create_webhook(dataset, address, events, threshold=below)
        again = f"grovekeeper webhooks rotate {dataset} {answer['id']}"
        hand_over(call.output, answer, "secret", stream, again=again)
    call.output.say(f"{answer['id']} is told about {', '.join(answer['events'])}")
    call.output.hint(f"grovekeeper webhooks list {dataset}")


@webhook_commands.command("list")
def list_webhooks(call: Remote, dataset: DatasetArgument) -> None:
    """List the webhooks of a dataset, and how many events wait for each."""
    call.show_all(
        "webhooks",
        lambda client: client.webhooks(dataset),
        {
            "id": "id",
            "address": "url",
            "events": "events",
            "below": "threshold",
            "waiting": "waiting",
            "failures": "failures",
        },
    )


@webhook_commands.command("deliveries")
def list_deliveries(
    call: Remote, dataset: DatasetArgument, webhook: WebhookArgument
) -> None:
    """List the last events that a webhook was told about, or could not be told about,
    newest first.
    """

    def last(client: Client) -> list[JsonObject]:
        listed = {item["id"]: item for item in client.webhooks(dataset)}
        if webhook not in listed:
            raise WrongUse(f"{dataset} has no webhook {webhook}")
        deliveries: list[JsonObject] = listed[webhook]["deliveries"]
        return deliveries

    call.show_all(
        "deliveries",
        last,
        {
            "event": "event",
            "since": "created_at",
            "last attempt": "attempted_at",
            "attempts": "attempts",
            "answer": lambda item: item["status"] or item["reason"],
        },
        empty="no event was delivered yet",
    )


@webhook_commands.command("test")
def send_test(call: Remote, dataset: DatasetArgument, webhook: WebhookArgument) -> None:
    """Tell a webhook about a test event, after the events that wait for it."""
    answer = call.ask(lambda client: client.test_webhook(dataset, webhook))
    events = "event waits" if answer["waiting"] == 1 else "events wait"
    call.output.say(f"{answer['waiting']} {events} for {answer['id']}")
    call.output.hint(f"grovekeeper webhooks deliveries {dataset} {webhook}")


@webhook_commands.command("rotate")
def rotate(
    call: Remote,
    dataset: DatasetArgument,
    webhook: WebhookArgument,
    overlap_s: int | None = option(
        "Seconds for which requests carry the earlier secret's signature, too: a day by default, seven days "
        "at most. 0 ends it at once.",
        "--overlap",
        min=0,
    ),
    save: SaveOption = None,
) -> None:
    """Replace the secret of a webhook's signatures. The new secret is shown once, or
    saved to a file.
    """
    with secret_file(save) as stream:
        with call.client() as client:
            answer = client.rotate_webhook(dataset, webhook, overlap_s=overlap_s)
        again = f"grovekeeper webhooks rotate {dataset} {webhook}"
        hand_over(call.output, answer, "secret", stream, again=again)
    until = answer["earlier_secret_until"]
    kept = "signs nothing any more" if until is None else f"signs until {until}, too"
    call.output.say(f"the earlier secret {kept}")


@webhook_commands.command("remove")
def remove(call: Remote, dataset: DatasetArgument, webhook: WebhookArgument) -> None:
    """Remove a webhook. Events that wait for it are dropped."""
    call.ask(
        lambda client: client.delete_webhook(dataset, webhook),
        as_json={"webhook": webhook, "removed": True},
    )
    call.output.say(f"removed {webhook}")
