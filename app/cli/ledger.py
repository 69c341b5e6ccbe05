"""Implements ``grovekeeper ledger``: shows, exports and charges accounts, and changes caps."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.arguments import (
    AccountArgument,
    AttemptOption,
    DatasetArgument,
    ScopeOption,
    check_new,
    json_object,
    read_bytes,
    read_scope,
)
from app.cli.command import Client, Remote, WrongUse, command, one_attempt
from app.cli.datasets import balance_cells
from app.cli.output import GIVEN_EARLIER, Output, amount, budget_bar
from grovekeeper_client.errors import ApiProblem

MAX_SHOWN_CELLS = 32

app = typer.Typer(help="Read balances and entries, export them, change caps.", no_args_is_help=True)


@dataclass(frozen=True)
class NewCap:
    """Arguments of a change of cap."""

    epsilon: Annotated[str, typer.Argument(help="The new lifetime ε, at the account's own δ.", show_default=False)]
    reason: Annotated[str, typer.Option(help="The reason; the entries keep it for good.", show_default=False)]
    idempotency_key: AttemptOption = None


@app.command("show")
@command
def show(
    call: Remote,
    account: Annotated[
        str | None,
        typer.Argument(help="Name or id of a dataset, or id of a population; default all.", show_default=False),
    ] = None,
    scope: ScopeOption = None,
) -> None:
    """Show what is charged, reserved and left."""
    output = call.output
    with call.client() as client:
        if account is None:
            accounts = _all_accounts(client, output)
            answer: dict[str, Any] = {"datasets": accounts}
        else:
            answer = client.balance(account, scope=read_scope(scope, partial(client.dataset, account)) or None)
            accounts = [answer]
    output.answer(answer)
    show_accounts(output, accounts)
    if account is not None:
        show_cells(output, answer)
        if answer.get("delta_set_aside") is not None:
            part = answer["delta_set_aside"]
            output.say(f"δ set aside: {part['charged']} of {part['set_aside']} charged, {part['remaining']} left")
        output.say()
        output.guarantee(answer["guarantee"])
        output.hint(f"grovekeeper ledger export {account} {answer['account_name']}.jsonl    (owners and auditors)")


@dataclass(frozen=True)
class Stated:
    """Options that state the loss of a mechanism: an event, or one declared loss."""

    event: Annotated[Path | None, typer.Option(help="File with the event (docs/events.md).", show_default=False)] = None
    epsilon: Annotated[str | None, typer.Option(help="Declared ε.", show_default=False)] = None
    delta: Annotated[str | None, typer.Option(help="Declared δ beside ε.", show_default=False)] = None
    rho: Annotated[str | None, typer.Option(help="Declared ρ.", show_default=False)] = None
    mu: Annotated[str | None, typer.Option(help="Declared μ.", show_default=False)] = None
    adjacency: Annotated[str, typer.Option(help="Of the declared loss: add_remove or label.")] = "add_remove"
    per: Annotated[str, typer.Option(help="The loss is that of one row or of one unit.")] = "row"
    scope: ScopeOption = None

    def body(self, client: Client, dataset: str, description: str) -> dict[str, Any]:
        """The body of the request.

        Raises:
            WrongUse: an event and a declared loss, or neither.
        """
        given = {"epsilon": self.epsilon, "delta": self.delta, "rho": self.rho, "mu": self.mu}
        declared = {name: value for name, value in given.items() if value is not None}
        if (self.event is None) is not bool(declared):
            raise WrongUse("state the loss: an --event file, or one of --epsilon, --rho, --mu")
        scope = read_scope(self.scope, partial(client.dataset, dataset))
        body: dict[str, Any] = {"description": description, "per": self.per, "scope": scope}
        if self.event is not None:
            return body | {"event": json_object(read_bytes(self.event).decode("utf-8", "replace"), "the event")}
        return body | {"declared": {"adjacency": self.adjacency, **declared}}


@app.command("charge")
@command
def charge(
    call: Remote,
    dataset: DatasetArgument,
    description: Annotated[str, typer.Option(help="What will run; the entries keep it.", show_default=False)],
    stated: Stated,
    quote: Annotated[bool, typer.Option("--quote", help="Quote the price and charge nothing.")] = False,
    idempotency_key: AttemptOption = None,
) -> None:
    """Charge a dataset's account for an external mechanism, before it runs. A charge is never given back."""
    output = call.output
    with call.client() as client, _without_epsilon_of_a_job(stated, output):
        body = stated.body(client, dataset, description)
        if quote:
            answer = client.quote_external(dataset, body)
        else:
            with one_attempt(output, idempotency_key) as key:
                answer = client.charge_external(dataset, body, idempotency_key=key)
    output.answer(answer)
    output.say(answer["receipt"])
    price = amount(answer["price"])
    if quote:
        verdict = "it fits" if answer["fits"] else "it does not fit"
        output.say(f"would cost {price}; {answer['remaining']} left: {verdict}")
        output.odds(answer["odds"], condition=GIVEN_EARLIER)
        output.warnings(answer)
        return
    output.say(f"charged {price} to {answer['dataset_name']} as {answer['reservation_id']}; the mechanism may run now")
    output.hint(f"grovekeeper ledger show {dataset}")


@app.command("reservations")
@command
def reservations(call: Remote, dataset: DatasetArgument) -> None:
    """List the charges for external mechanisms, and who attests them."""
    with call.client() as client:
        listed = list(client.reservations(dataset))
    call.output.answer({"reservations": listed})
    rows = [
        [item["reservation_id"], amount(item["price"]), item["per"], item["attested_by"], item["description"]]
        for item in listed
    ]
    call.output.table(["reservation", "amount", "per", "attested by", "for"], rows, empty="none")


@contextmanager
def _without_epsilon_of_a_job(stated: Stated, output: Output) -> Iterator[None]:
    """Leaves the ε of a job out of a refusal if the mechanism states ρ, μ or an event."""
    try:
        yield
    except ApiProblem as problem:
        if stated.epsilon is None and not output.as_json:
            problem.body = {name: value for name, value in problem.body.items() if name != "largest_that_fits"}
        raise


@app.command("cap")
@command
def cap(call: Remote, account: AccountArgument, new: NewCap) -> None:
    """Lower a lifetime cap (its owner), or raise it (an admin). What is charged stays charged."""
    output = call.output
    with call.client() as client, one_attempt(output, new.idempotency_key) as key:
        balance = client.change_cap(account, new.epsilon, reason=new.reason, idempotency_key=key)
    output.answer(balance)
    name, remaining = balance["account_name"], amount(balance, "remaining")
    output.say(f"the cap of {name} is now {amount(balance, 'cap')}; {remaining} are left")
    output.warnings(balance)
    output.hint(f"grovekeeper ledger show {account}")


@dataclass(frozen=True)
class EntrySearch:
    """Options that choose entries."""

    kind: Annotated[str | None, typer.Option(help="Only one kind, such as charge.", show_default=False)] = None
    job: Annotated[str | None, typer.Option(help="Of a job or a reservation.", show_default=False)] = None
    actor: Annotated[str | None, typer.Option(help="Of a key, or of the worker.", show_default=False)] = None
    scope: ScopeOption = None


@app.command("entries")
@command
def entries(call: Remote, account: AccountArgument, search: EntrySearch) -> None:
    """Show the entries of an account, the oldest first: all of them, or those that the options choose."""
    with call.client() as client:
        scope = read_scope(search.scope, partial(client.dataset, account)) or None
        listed = client.entry_list(account, kind=search.kind, job=search.job, actor=search.actor, scope=scope)
    call.output.answer(listed)
    show_entries(call.output, listed)


@app.command("export")
@command
def export(
    call: Remote,
    account: AccountArgument,
    file: Annotated[Path, typer.Argument(help="File to write; must not exist.", show_default=False)],
    export_format: Annotated[str, typer.Option("--format", help="jsonl (which can be verified) or csv.")] = "jsonl",
) -> None:
    """Write the whole history of an account to a file."""
    check_new(file)
    output = call.output
    with call.client() as client:
        digest = client.export_ledger(account, file, export_format=export_format)
    output.answer({"account": account, "file": str(file), "sha256": digest})
    output.say(f"wrote {file} ({file.stat().st_size} bytes)")
    if export_format == "jsonl":
        output.hint(f"grovekeeper verify {file}")


def _all_accounts(client: Client, output: Output) -> list[dict[str, Any]]:
    """The accounts whose ledger the key may read. An analyst may read the balance of a dataset, but not the list."""
    try:
        return list(client.balances())
    except ApiProblem as problem:
        if problem.type == "role-missing" and not output.as_json:
            output.complain("to read one balance, name its dataset: grovekeeper ledger show DATASET")
        raise


def show_accounts(output: Output, accounts: list[dict[str, Any]], *, indent: int = 0) -> None:
    """Prints balances, each with a picture: # charged, = reserved, . left."""
    rows = [
        [
            item["account_name"],
            item["account"] + (f" (erased {item['deleted_at'][:10]})" if item.get("deleted_at") else ""),
            *balance_cells(item),
            budget_bar(cap=item["cap"], charged=item["charged"], reserved=item["reserved"]),
        ]
        for item in accounts
    ]
    columns = ["account", "id", "accountant", "cap", "charged", "reserved", "remaining", "# charged = reserved . left"]
    output.table(columns, rows, empty="no accounts", indent=indent)


def show_cells(output: Output, balance: dict[str, Any]) -> None:
    """Prints the tightest cell, the largest ε that fits there, and the cells of each partition with few cells."""
    if balance["kind"] == "dataset":
        cell = ", ".join(f"{name}={value}" for name, value in balance["tightest_cell"].items())
        output.say(f"tightest cell: {cell or 'the whole dataset'}")
    output.say(f"largest ε that fits: {balance['largest_that_fits']}")
    if not balance["exact"]:
        output.say("note: these amounts are an upper bound; the maximum over all joint cells is too expensive")
    for partition in balance["partitions"]:
        cells = [[item[name] for name in ("cell", "charged", "reserved", "remaining")] for item in partition["cells"]]
        if len(cells) > MAX_SHOWN_CELLS:
            output.say(f"{partition['name']}: {len(cells)} cells; see --json")
            continue
        output.table([partition["name"], "charged", "reserved", "remaining"], cells, empty="no uploads yet", indent=2)


def show_entries(output: Output, listed: Mapping[str, Any], *, indent: int = 0) -> None:
    """Prints entries in their order, each with what its job ran, for which key and for which purpose.

    Entries of a population name the member's entry in place of a scope.

    Args:
        output: where the command prints.
        listed: the answer of the service.
        indent: spaces before each line.
    """
    entries, names, jobs = listed["entries"], listed["actors"], listed["jobs"]
    members = [entry.get("details", {}).get("member") for entry in entries]
    of_population = any(members)
    rows = [
        [
            entry["sequence"],
            entry["kind"],
            entry["amount"],
            *(_member_cells(member) if of_population else [json.dumps(entry["scope"]) if entry["scope"] else "all"]),
            _payer(entry, jobs),
            _asked_by(entry, jobs, names),
            entry["at"],
            entry["hash"][:12],
        ]
        for entry, member in zip(entries, members, strict=True)
    ]
    where = ["dataset", "its #"] if of_population else ["scope"]
    output.table(["#", "kind", "amount", *where, "for", "key", "at", "hash"], rows, empty="no entries", indent=indent)


def _payer(entry: Mapping[str, Any], jobs: Mapping[str, Any]) -> str | None:
    """What a job ran with its name, models and purpose, the reservation of an external mechanism, or the erased dataset
    whose account goes on."""
    reference, job = entry["job_id"], jobs.get(entry["job_id"])
    if continued := entry.get("details", {}).get("continues"):
        return f"the erased {continued['dataset']}"
    if job is None:
        return f"external {reference}" if reference and reference.startswith("rs_") else reference
    ran = ", ".join(filter(None, [job["algorithm"] or job["kind"], job["name"], *job["models"]]))
    purpose = entry.get("details", {}).get("purpose")
    return f"{reference}: {ran}" + (f"; purpose: {purpose}" if purpose else "")


def _asked_by(entry: Mapping[str, Any], jobs: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """The key that acted, and the key that submitted the job."""
    actor, job = entry["actor"], jobs.get(entry["job_id"])
    if job is None or job["submitted_by"] == actor:
        return _key(actor, names)
    return f"{_key(actor, names)} for {_key(job['submitted_by'], names)}"


def _key(key_id: str, names: Mapping[str, str]) -> str:
    return f"{names[key_id]} ({key_id})" if key_id in names else key_id


def _member_cells(member: dict[str, Any] | None) -> list[Any]:
    return [None, None] if member is None else [member["dataset"], member["sequence"]]
