"""Implements ``grovekeeper ledger``, ``audit`` and ``verify``: accounts, their caps and
charges, and evidence.
"""

import json
import tempfile
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import typer
import yaml

from grovekeeper_client.cli.command import (
    AccountArgument,
    AttemptOption,
    CapInUnits,
    Client,
    DatasetArgument,
    Group,
    Plain,
    Remote,
    ScopeOption,
    WrongUse,
    argument,
    check_new,
    command,
    given,
    json_object,
    one_attempt,
    option,
    read_bytes,
    read_scope,
)
from grovekeeper_client.cli.datasets import balance_cells, limit_of
from grovekeeper_client.cli.output import (
    GIVEN_EARLIER,
    Output,
    amount,
    budget_bar,
    key_in_words,
)
from grovekeeper_client.errors import ApiProblem
from grovekeeper_common import durable_files, scope_words
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_common.limit_words import limit_in_words
from grovekeeper_common.number_words import share_in_words
from grovekeeper_common.verification_words import verification_in_words

MAX_SHOWN_CELLS = 32
MAX_PART_BYTES = 256 * 1024
"""Bytes of the owner's part of a record: those of a request."""

app = Group("Read balances and entries, export them, change caps.")


@app.command("show")
def show(
    call: Remote,
    account: Annotated[
        str | None,
        argument("Name or id of a dataset, or id of a population; default all."),
    ] = None,
    scope: ScopeOption = None,
) -> None:
    """Show what is charged, reserved and left."""
    output = call.output
    with call.client() as client:
        if account is None:
            accounts = _all_accounts(client, output)
            answer: JsonObject = {"datasets": accounts}
        else:
            answer = client.balance(
                account,
                scope=read_scope(scope, partial(client.dataset, account)) or None,
            )
            accounts = [answer]
    output.answer(answer)
    show_accounts(output, accounts)
    if account is not None:
        show_cells(output, answer)
        if answer.get("delta_set_aside") is not None:
            part = answer["delta_set_aside"]
            output.say(
                f"δ set aside: {part['charged']} of {part['set_aside']} charged, {part['remaining']} left"
            )
        for verification in answer["verifications"]:
            output.say(verification_in_words(verification))
        output.say()
        output.guarantee(answer["guarantee"])
        output.hint(
            f"grovekeeper ledger export {account} {answer['account_name']}.jsonl    (owners and auditors)"
        )


@dataclass(frozen=True)
class Stated:
    """Options that state the loss of a mechanism: an event, or one declared loss."""

    event: Path | None = option("File with the event (docs/events.md).")
    epsilon: str | None = option("Declared ε.")
    delta: str | None = option("Declared δ beside ε.")
    rho: str | None = option("Declared ρ.")
    mu: str | None = option("Declared μ.")
    adjacency: str = option(
        "Of the declared loss: add_remove or label.", default="add_remove"
    )
    per: str = option("The loss is that of one row or of one unit.", default="row")
    scope: ScopeOption = None

    def body(self, client: Client, dataset: str, description: str) -> JsonObject:
        """The body of the request.

        Raises:
            WrongUse: an event and a declared loss, or neither.
        """
        declared = given(
            epsilon=self.epsilon, delta=self.delta, rho=self.rho, mu=self.mu
        )
        if (self.event is None) is not bool(declared):
            raise WrongUse(
                "state the loss: an --event file, or one of --epsilon, --rho, --mu"
            )
        scope = read_scope(self.scope, partial(client.dataset, dataset))
        body: JsonObject = {
            "description": description,
            "per": self.per,
            "scope": scope,
        }
        if self.event is not None:
            return body | {"event": json_object(read_bytes(self.event), "the event")}
        return body | {"declared": {"adjacency": self.adjacency, **declared}}


@app.command("charge")
def charge(
    call: Remote,
    dataset: DatasetArgument,
    description: Annotated[
        str, typer.Option(help="What will run; the entries keep it.")
    ],
    stated: Stated,
    quote: bool = option(
        "Quote the price and charge nothing.", "--quote", default=False
    ),
    idempotency_key: AttemptOption = None,
) -> None:
    """Charge a dataset's account for an external mechanism, before it runs. A charge is
    never given back.
    """
    output = call.output
    with call.client() as client:
        body = stated.body(client, dataset, description)
        try:
            if quote:
                answer = client.quote_external(dataset, body)
            else:
                with one_attempt(output, idempotency_key) as key:
                    answer = client.charge_external(dataset, body, idempotency_key=key)
        except ApiProblem as problem:
            # people who state ρ, μ or an event have no use for an ε
            if stated.epsilon is None and not output.as_json:
                problem.body = {
                    name: value
                    for name, value in problem.body.items()
                    if name != "largest_that_fits"
                }
            raise
    output.answer(answer)
    output.say(answer["receipt"])
    price = amount(answer["price"])
    if quote:
        verdict = (
            "it fits"
            if answer["fits"]
            else f"it does not fit, limited by {limit_in_words(answer['limited_by'])}"
        )
        output.say(f"would cost {price}; {answer['remaining']} left: {verdict}")
        output.odds(answer["odds"], condition=GIVEN_EARLIER)
        output.warnings(answer)
        return
    output.say(
        f"charged {price} to {answer['dataset_name']} as {answer['reservation_id']}; the mechanism may run now"
    )
    output.hint(f"grovekeeper ledger show {dataset}")


@app.command("reservations")
def reservations(call: Remote, dataset: DatasetArgument) -> None:
    """List the charges for external mechanisms, and who attests them."""
    call.show_all(
        "reservations",
        lambda client: client.reservations(dataset),
        {
            "reservation": "reservation_id",
            "amount": lambda item: amount(item["price"]),
            "per": "per",
            "attested by": "attested_by",
            "for": "description",
        },
        empty="none",
        dataset=dataset,
    )


@app.command("cap")
def cap(
    call: Remote,
    account: AccountArgument,
    reason: Annotated[
        str, typer.Option(help="The reason; the entries keep it for good.")
    ],
    epsilon: Annotated[
        str | None, argument("The new lifetime ε, at the account's own δ.")
    ] = None,
    *,
    instead: CapInUnits,
    idempotency_key: AttemptOption = None,
) -> None:
    """Lower a lifetime cap (its owner), or raise it (an admin). What is charged stays
    charged.
    """
    output = call.output
    with call.client() as client, one_attempt(output, idempotency_key) as key:
        balance = client.change_cap(
            account, epsilon, reason=reason, idempotency_key=key, **instead.stated
        )
    output.answer(balance)
    name = balance["account_name"]
    remaining = amount(balance, "remaining")
    output.say(
        f"the cap of {name} is now {amount(balance, 'cap')}; {remaining} are left"
    )
    output.warnings(balance)
    output.hint(f"grovekeeper ledger show {account}")


@dataclass(frozen=True)
class EntryOptions:
    """Which entries are shown."""

    kind: str | None = option(
        "Only open, reserve, charge, void, expire, cap, join, load or state."
    )
    job: str | None = option("Of a job or a reservation.")
    actor: str | None = option("Of a key, by id or name; or of worker or sweeper.")
    scope: ScopeOption = None
    purpose: str | None = option("Of the jobs that were submitted for it.")


@app.command("entries")
def entries(call: Remote, account: AccountArgument, chosen: EntryOptions) -> None:
    """Show the entries of an account, the oldest first: all of them, or those that the
    options choose.
    """
    with call.client() as client:
        cells = read_scope(chosen.scope, partial(client.dataset, account)) or None
        listed = client.entry_list(account, **vars(chosen) | {"scope": cells})
    call.output.answer(listed)
    show_entries(call.output, listed)


@app.command("spent")
def spent(
    call: Remote,
    dataset: DatasetArgument,
    by: str = option(
        "key, purpose, kind, month or cell; key,purpose for both.", default="key"
    ),
    actor: str | None = option("Only charges of this key, by id or name."),
) -> None:
    """Add up what was charged by key, purpose, both, kind, month or cell (--by). An
    analyst sees the charges of the own key.
    """
    output = call.output
    answer = call.ask(lambda client: client.spent(dataset, by=by, actor=actor))
    rows = [
        [
            _group(group, by),
            group["charges"],
            group["charged"],
            share_in_words(group["share"]),
        ]
        for group in answer["groups"]
    ]
    empty = "no cells are declared" if by == "cell" else "nothing charged"
    output.table([by, "charges", "charged", "share"], rows, empty=empty)
    # A reader may see a part of the charges, and what is left is left for everybody.
    output.say(
        f"charges shown: {amount(answer, 'charged')}; "
        f"spent of the cap, by everybody: {amount(answer, 'spent')}"
    )
    if answer["carried"] != "0":
        carried = amount(answer, "carried")
        output.say(f"spent by the erased dataset of this name: {carried}")
    total = Fraction(answer["charged"]) + Fraction(answer["carried"])
    if total > Fraction(answer["spent"]):
        output.say(
            "note: the charges add up to more than is spent, because charges on different cells do not add up for "
            "any one record"
        )


def _group(group: JsonMapping, by: str) -> str:
    words = group["group"] or "no purpose stated"
    if group["name"] is not None:
        words = f"{group['name']} ({words})"
    if by == "key,purpose":
        words += f": {group['purpose'] or 'no purpose stated'}"
    return words


@app.command("export")
def export(
    call: Remote,
    account: AccountArgument,
    file: Annotated[Path, argument("File to write; must not exist.")],
    export_format: str | None = option(
        "jsonl, which can be verified, or csv; default: the file's ending.", "--format"
    ),
) -> None:
    """Write the whole history of an account to a file."""
    check_new(file)
    export_format = export_format or (
        "csv" if file.suffix.lower() == ".csv" else "jsonl"
    )
    output = call.output
    with call.client() as client:
        digest = client.export_ledger(account, file, export_format=export_format)
    output.answer({"account": account, "file": str(file), "sha256": digest})
    output.say(f"wrote {file} ({file.stat().st_size} bytes)")
    if export_format == "jsonl":
        output.hint(f"grovekeeper verify {file}")


@app.command("verify")
def verify_account(
    call: Remote,
    account: AccountArgument,
    checkpoint: list[Path] | None = option(
        "A checkpoint that you kept, to compare with, too; may be repeated."
    ),
    public_key: Path | None = option(
        "The public key that you kept; default: the service's."
    ),
    state: bool = option(
        "State the result to the service, under the name of your key (auditors).",
        "--state",
        default=False,
    ),
) -> None:
    """Export an account and verify it on this machine, against its signed head.

    Only a public key and checkpoints that you kept show that the service did not make
    all of them anew.
    """
    output = call.output
    with call.client() as client, tempfile.TemporaryDirectory() as name:
        file, head, key = (Path(name, part) for part in ("export", "head", "key"))
        note = client.checkpoint(account)  # the export then has all of its entries
        head.write_text(note, encoding="utf-8")
        key.write_text(client.signer()["public_key"], encoding="utf-8")
        client.export_ledger(account, file)
        verifier = _verifier()
        evidence = verifier.Evidence((head, *(checkpoint or ())), public_key or key)
        with redirect_stdout(StringIO()) as printed:
            code = verifier.run(file, evidence, as_json=True)
        result = json.loads(printed.getvalue())
        verdict = result["verdict"]
        output.json(result)
        output.say(f"{verdict}: {result['note'] if code == 0 else result['reason']}")
        if not state:
            output.say("not stated to the service: an auditor adds --state")
        elif code != verifier.UNREADABLE:
            client.state_verification(account, verdict=verdict, checkpoint=note)
            output.say("stated to the service, under the name of your key")
    raise typer.Exit(code)


def _all_accounts(client: Client, output: Output) -> list[JsonObject]:
    """The accounts whose ledger the key may read. An analyst may read the balance of a
    dataset, but not the list.
    """
    try:
        return list(client.balances())
    except ApiProblem as problem:
        if problem.type == "role-missing" and not output.as_json:
            output.complain(
                "to read one balance, name its dataset: grovekeeper ledger show DATASET"
            )
        raise


def show_accounts(
    output: Output, accounts: list[JsonObject], *, indent: int = 0
) -> None:
    """Prints balances, each with a picture: # charged, = reserved, . left."""
    rows = [
        [
            item["account_name"],
            item["account"]
            + (
                f" (erased {item['deleted_at'][:10]})" if item.get("deleted_at") else ""
            ),
            *balance_cells(item),
            budget_bar(
                cap=item["cap"], charged=item["charged"], reserved=item["reserved"]
            ),
        ]
        for item in accounts
    ]
    columns = [
        "account",
        "id",
        "accountant",
        "cap",
        "charged",
        "reserved",
        "remaining",
        "charged #, reserved =, left .",
    ]
    output.table(columns, rows, empty="no accounts", indent=indent)


def show_cells(output: Output, balance: JsonObject) -> None:
    """Prints the tightest cell, the largest ε that fits there, and the cells of each
    partition with few cells.
    """
    if balance["kind"] == "dataset":
        cell = ", ".join(
            f"{name}={value}" for name, value in balance["tightest_cell"].items()
        )
        output.say(f"tightest cell: {cell or 'the whole dataset'}")
    limit = limit_of(balance)
    output.say(
        f"largest ε that fits: {balance['largest_that_fits']}"
        + (f", {limit}" if limit else "")
    )
    if not balance["exact"]:
        output.say(
            "note: these amounts are an upper bound; the maximum over all joint cells is too expensive"
        )
    for partition in balance["partitions"]:
        cells = [
            [item[name] for name in ("cell", "charged", "reserved", "remaining")]
            for item in partition["cells"]
        ]
        if len(cells) > MAX_SHOWN_CELLS:
            output.say(f"{partition['name']}: {len(cells)} cells; see --json")
            continue
        output.table(
            [partition["name"], "charged", "reserved", "remaining"],
            cells,
            empty="no uploads yet",
            indent=2,
        )


def show_entries(output: Output, listed: JsonMapping, *, indent: int = 0) -> None:
    """Prints entries in their order, each with what its job ran, for which key and for
    which purpose.

    Entries of a population name the member's entry in place of a scope.
    """
    entries = listed["entries"]
    names = listed["actors"]
    jobs = listed["jobs"]
    members = [entry.get("details", {}).get("member") for entry in entries]
    of_population = any(members)
    rows = []
    for entry, member in zip(entries, members, strict=True):
        scope = [scope_words.covered(entry["scope"]) if entry["scope"] else "all"]
        rows.append(
            [
                entry["sequence"],
                entry["kind"],
                entry["amount"],
                *(_member_cells(member) if of_population else scope),
                _payer(entry, jobs),
                _asked_by(entry, jobs, names),
                entry["at"],
                entry["hash"][:12],
            ]
        )
    where = ["dataset", "its #"] if of_population else ["scope"]
    output.table(
        ["#", "kind", "amount", *where, "for", "key", "at", "hash"],
        rows,
        empty="no entries",
        indent=indent,
    )


def _payer(entry: JsonMapping, jobs: JsonMapping) -> str | None:
    """What a job ran with its name, models and purpose; the reservation of an external
    mechanism; the reason of a change of the cap; or the erased dataset whose account
    goes on.
    """
    reference = entry["job_id"]
    job = jobs.get(entry["job_id"])
    if continued := entry.get("details", {}).get("continues"):
        return f"the erased {continued['dataset']}"
    if reason := entry.get("details", {}).get("reason"):
        return f"reason: {reason}"
    if job is None:
        return (
            f"external {reference}"
            if reference and reference.startswith("rs_")
            else reference
        )
    ran = ", ".join(filter(None, [job["what"], job["name"], *job["models"]]))
    line = f"{reference}: {ran}"
    for name in ("label", "purpose"):
        stated = entry.get("details", {}).get(name)
        if stated:
            line += f"; {name}: {stated}"
    return line


def _asked_by(entry: JsonMapping, jobs: JsonMapping, names: Mapping[str, str]) -> str:
    """The key that acted, and the key that submitted the job."""
    actor = entry["actor"]
    job = jobs.get(entry["job_id"])
    if job is None or job["submitted_by"] == actor:
        return key_in_words(actor, names)
    submitter = key_in_words(job["submitted_by"], names)
    return f"{key_in_words(actor, names)} for {submitter}"


def _member_cells(member: JsonObject | None) -> list[Any]:
    return [None, None] if member is None else [member["dataset"], member["sequence"]]


NewFile = Annotated[
    Path | None, argument("File to write; must not exist. Default: print.")
]


@app.command("checkpoint")
def checkpoint(call: Remote, account: AccountArgument, file: NewFile = None) -> None:
    """Download the signed head of an account's log, to check later exports against."""
    check_new(file)
    with call.client() as client:
        note = client.checkpoint(account)
    give(call.output, note, file=file, as_json={"account": account, "checkpoint": note})
    if file is not None:
        call.output.hint(
            f"grovekeeper ledger export {account} EXPORT.jsonl",
            "grovekeeper ledger signer SIGNER.pem",
            f"grovekeeper verify EXPORT.jsonl --checkpoint {file} --public-key SIGNER.pem",
        )


@app.command("deployment")
def deployment(
    call: Remote,
    account: AccountArgument,
    file: NewFile = None,
    owner: Path | None = option(
        "What only you know, as a part of the record: YAML or JSON."
    ),
) -> None:
    """Write a record for the public registry of deployments, with the members that only
    the owner knows.

    The service fills in what it knows and stores nothing of --owner.
    """
    check_new(file)
    with call.client() as client:
        answer = client.deployment(account)
    complete(answer, {} if owner is None else _read_part(owner))
    text = yaml.safe_dump(
        answer["record"], sort_keys=False, allow_unicode=True, width=100
    )
    give(call.output, text, file=file, as_json=answer)
    for pointer in answer["missing"]["required"]:
        call.output.complain(f"missing: {pointer} (give it with --owner FILE)")


def complete(answer: JsonObject, part: JsonObject) -> None:
    """Puts the owner's part into the record of a deployment document; ``missing`` keeps
    what is still required.

    Raises:
        WrongUse: the part has a member that the service fills in, or that the registry
            does not have.
    """
    missing = answer["missing"]
    given = _fill_in(
        answer["record"], part, [*missing["required"], *missing["optional"]], at=""
    )
    missing["required"] = [
        pointer for pointer in missing["required"] if pointer not in given
    ]
    if not missing["required"] and "/deployment/implementation/justification" in given:
        answer["record"]["tier"] = 3


def _fill_in(
    record: JsonObject, part: JsonObject, owners: list[str], *, at: str
) -> list[str]:
    """Fills in the members at a pointer, and returns the pointers of what was given."""
    given = []
    for name, value in part.items():
        pointer = f"{at}/{name}"
        if pointer in owners:
            record[name] = value.isoformat() if hasattr(value, "isoformat") else value
            given.append(pointer)
        elif isinstance(value, dict) and any(
            owned.startswith(f"{pointer}/") for owned in owners
        ):
            given += _fill_in(record.setdefault(name, {}), value, owners, at=pointer)
        else:
            raise WrongUse(
                f"{pointer} is not for the owner to fill in; these are: {', '.join(owners)}"
            )
    return given


def _read_part(file: Path) -> JsonObject:
    content = read_bytes(file)
    try:
        part = yaml.safe_load(content) if len(content) <= MAX_PART_BYTES else None
    except yaml.MarkedYAMLError as error:
        line = 1 if error.problem_mark is None else error.problem_mark.line + 1
        raise WrongUse(f"{file} is no YAML or JSON: line {line}") from None
    except yaml.YAMLError:
        part = None
    if not isinstance(part, dict):
        raise WrongUse(
            f"{file} is no mapping in YAML or JSON of at most {MAX_PART_BYTES} bytes"
        )
    return part


@app.command("proof")
def proof(
    call: Remote,
    account: AccountArgument,
    file: NewFile = None,
    sequence: int | None = option("Prove that this entry is in the log.", min=1),
    from_size: int | None = option(
        "Prove that the log only grew since this size.", min=1
    ),
    size: int | None = option("Size of the checkpoint; default the newest.", min=1),
) -> None:
    """Download a proof of inclusion (--sequence) or of consistency (--from-size)."""
    check_new(file)
    with call.client() as client:
        if sequence is not None and from_size is None:
            answer = client.inclusion(account, sequence, size=size)
        elif from_size is not None and sequence is None:
            answer = client.consistency(account, from_size, size=size)
        else:
            raise WrongUse("give --sequence or --from-size")
    give(
        call.output,
        json.dumps(answer, ensure_ascii=False) + "\n",
        file=file,
        as_json=answer,
    )
    if file is not None:
        checkpoints = (
            "--checkpoint CHECKPOINT"
            if from_size is None
            else "--checkpoint EARLIER --checkpoint LATER"
        )
        call.output.hint(
            f"grovekeeper verify {file} {checkpoints} --public-key SIGNER.pem"
        )


@app.command("signer")
def signer(call: Remote, file: NewFile = None) -> None:
    """Download the public key that checkpoints are checked with."""
    check_new(file)
    with call.client() as client:
        answer = client.signer()
    give(call.output, answer["public_key"], file=file, as_json=answer)
    if file is not None:
        call.output.hint("grovekeeper ledger checkpoint ACCOUNT ACCOUNT.checkpoint")


@command
def verify(
    call: Plain,
    file: Annotated[Path, argument("An export (JSON Lines) or a proof (JSON).")],
    checkpoint: list[Path] | None = option(
        "A checkpoint to compare with; may be repeated."
    ),
    public_key: Path | None = option("The public key that signed the checkpoints."),
    member: list[Path] | None = option(
        "The export of a member, if FILE is the export of its population; may be repeated."
    ),
    erased: list[Path] | None = option(
        "The export of the erased dataset whose account FILE continues; may be repeated for those before."
    ),
) -> None:
    """Check the export of an account (chain, sums, caps, prices), or a proof. Needs no
    service.

    The first word, and in --json the verdict, says what was checked: VERIFIED with a
    checkpoint, CONSISTENT without.
    """
    if bool(checkpoint) != (public_key is not None):
        missing = "--public-key" if checkpoint else "--checkpoint"
        raise WrongUse(
            f"a checkpoint is checked with a public key: {missing} is missing"
        )
    verifier = _verifier()
    evidence = verifier.Evidence(
        tuple(checkpoint or ()), public_key, tuple(member or ()), tuple(erased or ())
    )
    raise typer.Exit(verifier.run(file, evidence, as_json=call.as_json))


def _verifier() -> ModuleType:
    """The verifier, which other commands do without."""
    from grovekeeper_verifier import main as verifier

    return verifier


def give(
    output: Output, text: str, *, file: Path | None, as_json: dict[str, object]
) -> None:
    """Writes a text into a file, or prints it."""
    if file is not None:
        durable_files.write(file, text.encode("utf-8"), existing="refuse")
    if output.as_json:
        output.json(as_json)
    elif file is None:
        print(text, end="")
    else:
        output.say(f"wrote {file}")


act_commands = Group("List administrative acts and export them.")


@act_commands.command("list")
def list_acts(
    call: Remote,
    dataset: str | None = option(
        "Only acts about this dataset; its owners may list them, too."
    ),
) -> None:
    """List administrative acts: keys, grants, declarations, erasures, caps, rules,
    aliases and others. For auditors.
    """
    call.show_all(
        "acts",
        lambda client: client.acts(dataset=dataset),
        {
            "entry": "sequence",
            "at": "at",
            "act": "kind",
            "by": "actor",
            "details": lambda act: _details(act["details"]),
        },
        dataset=dataset,
    )


@act_commands.command("export")
def export_acts(
    call: Remote,
    file: Annotated[Path, argument("File to write; must not exist.")],
) -> None:
    """Download every administrative act, for `grovekeeper verify`."""
    check_new(file)
    with call.client() as client:
        digest = client.export_acts(file)
    call.output.answer({"file": str(file), "sha256": digest})
    call.output.say(f"wrote {file}")
    call.output.hint(f"grovekeeper verify {file}")


@act_commands.command("checkpoint")
def checkpoint_of_acts(call: Remote, file: NewFile = None) -> None:
    """Download the signed head of the administrative acts, to check later exports
    against.
    """
    check_new(file)
    with call.client() as client:
        note = client.checkpoint_of_acts()
    give(call.output, note, file=file, as_json={"log": "control", "checkpoint": note})


def _details(facts: JsonObject) -> str:
    """The facts of an act on one line."""
    texts = []
    for name, fact in facts.items():
        text = fact
        if isinstance(fact, list):
            text = " ".join(fact) or "none"
        elif isinstance(fact, dict):
            text = json.dumps(fact)
        texts.append(f"{name}: {text}")
    return ", ".join(texts)
