"""Implements ``grovekeeper audit``, ``verify``, and ``ledger checkpoint``, ``deployment``, ``proof`` and ``signer``."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.arguments import AccountArgument, check_new, read_bytes
from app.cli.command import Plain, Remote, WrongUse, command
from app.cli.ledger import app
from app.cli.output import Output
from app.core import limits

NewFile = Annotated[
    Path | None, typer.Argument(help="File to write; must not exist. Default: print.", show_default=False)
]


@app.command("checkpoint")
@command
def checkpoint(call: Remote, account: AccountArgument, file: NewFile = None) -> None:
    """Download the signed head of an account's log, to check later exports against."""
    _check_new(file)
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
@command
def deployment(
    call: Remote,
    account: AccountArgument,
    file: NewFile = None,
    owner: Annotated[
        Path | None,
        typer.Option(help="What only you know, as a part of the record: YAML or JSON.", show_default=False),
    ] = None,
) -> None:
    """Write a record for the public registry of deployments, with the members that only the owner knows.

    The service fills in what it knows and stores nothing of --owner.
    """
    _check_new(file)
    with call.client() as client:
        answer = client.deployment(account)
    import yaml

    complete(answer, {} if owner is None else _read_part(owner))
    text = yaml.safe_dump(answer["record"], sort_keys=False, allow_unicode=True, width=100)
    give(call.output, text, file=file, as_json=answer)
    for pointer in answer["missing"]["required"]:
        call.output.complain(f"missing: {pointer} (give it with --owner FILE)")


def complete(answer: dict[str, Any], part: dict[str, Any]) -> None:
    """Puts the owner's part into the record of a deployment document; ``missing`` keeps what is still required.

    Raises:
        WrongUse: the part has a member that the service fills in, or that the registry does not have.
    """
    missing = answer["missing"]
    given = _fill_in(answer["record"], part, [*missing["required"], *missing["optional"]], at="")
    missing["required"] = [pointer for pointer in missing["required"] if pointer not in given]
    if not missing["required"] and "/deployment/implementation/justification" in given:
        answer["record"]["tier"] = 3


def _fill_in(record: dict[str, Any], part: dict[str, Any], owners: list[str], *, at: str) -> list[str]:
    """Fills in the members at a pointer, and returns the pointers of what was given."""
    given = []
    for name, value in part.items():
        pointer = f"{at}/{name}"
        if pointer in owners:
            record[name] = value.isoformat() if hasattr(value, "isoformat") else value
            given.append(pointer)
        elif isinstance(value, dict) and any(owned.startswith(f"{pointer}/") for owned in owners):
            given += _fill_in(record.setdefault(name, {}), value, owners, at=pointer)
        else:
            raise WrongUse(f"{pointer} is not for the owner to fill in; these are: {', '.join(owners)}")
    return given


def _read_part(file: Path) -> dict[str, Any]:
    """Reads the owner's part of a record from YAML or JSON."""
    import yaml

    content = read_bytes(file)
    try:
        part = yaml.safe_load(content) if len(content) <= limits.MAX_JSON_BODY_BYTES else None
    except yaml.YAMLError:
        part = None
    if not isinstance(part, dict):
        raise WrongUse(f"{file} is no mapping in YAML or JSON of at most {limits.MAX_JSON_BODY_BYTES} bytes")
    return part


@app.command("proof")
@command
def proof(
    call: Remote,
    account: AccountArgument,
    file: NewFile = None,
    sequence: Annotated[
        int | None, typer.Option(min=1, help="Prove that this entry is in the log.", show_default=False)
    ] = None,
    from_size: Annotated[
        int | None, typer.Option(min=1, help="Prove that the log only grew since this size.", show_default=False)
    ] = None,
    size: Annotated[
        int | None, typer.Option(min=1, help="Size of the checkpoint; default the newest.", show_default=False)
    ] = None,
) -> None:
    """Download a proof of inclusion (--sequence) or of consistency (--from-size)."""
    _check_new(file)
    with call.client() as client:
        if sequence is not None and from_size is None:
            answer = client.inclusion(account, sequence, size=size)
        elif from_size is not None and sequence is None:
            answer = client.consistency(account, from_size, size=size)
        else:
            raise WrongUse("give --sequence or --from-size")
    give(call.output, json.dumps(answer, ensure_ascii=False) + "\n", file=file, as_json=answer)
    if file is not None:
        checkpoints = "--checkpoint CHECKPOINT" if from_size is None else "--checkpoint EARLIER --checkpoint LATER"
        call.output.hint(f"grovekeeper verify {file} {checkpoints} --public-key SIGNER.pem")


@app.command("signer")
@command
def signer(call: Remote, file: NewFile = None) -> None:
    """Download the public key that checkpoints are checked with."""
    _check_new(file)
    with call.client() as client:
        answer = client.signer()
    give(call.output, answer["public_key"], file=file, as_json=answer)
    if file is not None:
        call.output.hint("grovekeeper ledger checkpoint ACCOUNT ACCOUNT.checkpoint")


@command
def verify(
    call: Plain,
    file: Annotated[Path, typer.Argument(help="An export (JSON Lines) or a proof (JSON).", show_default=False)],
    checkpoint: Annotated[
        list[Path] | None,
        typer.Option(help="A checkpoint to compare with; may be repeated.", show_default=False),
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option(help="The public key that signed the checkpoints.", show_default=False)
    ] = None,
    member: Annotated[
        list[Path] | None,
        typer.Option(
            help="The export of a member, if FILE is the export of its population; may be repeated.",
            show_default=False,
        ),
    ] = None,
    erased: Annotated[
        list[Path] | None,
        typer.Option(
            help="The export of the erased dataset whose account FILE continues; may be repeated for those before.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Check the export of an account (chain, sums, caps, prices), or a proof. Needs no service."""
    from app.verifier import main as verifier

    if bool(checkpoint) != (public_key is not None):
        raise WrongUse("a checkpoint is checked with a public key: give --checkpoint and --public-key, or neither")
    evidence = verifier.Evidence(tuple(checkpoint or ()), public_key, tuple(member or ()), tuple(erased or ()))
    raise typer.Exit(verifier.run(file, evidence, as_json=call.as_json))


def _check_new(file: Path | None) -> None:
    if file is not None:
        check_new(file)


def give(output: Output, text: str, *, file: Path | None, as_json: dict[str, object]) -> None:
    """Writes a text into a file, or prints it."""
    if file is not None:
        file.write_text(text, encoding="utf-8")
    if output.as_json:
        output.json(as_json)
    elif file is None:
        print(text, end="")
    else:
        output.say(f"wrote {file}")


act_commands = typer.Typer(help="List administrative acts and export them.", no_args_is_help=True)


@act_commands.command("list")
@command
def list_acts(call: Remote) -> None:
    """List administrative acts: keys, grants, declarations, erasures, caps, rules, aliases and others."""
    with call.client() as client:
        acts = list(client.acts())
    call.output.answer({"acts": acts})
    rows = [[act["sequence"], act["at"], act["kind"], act["actor"], _details(act["details"])] for act in acts]
    call.output.table(["entry", "at", "act", "by", "details"], rows, empty="no acts")


@act_commands.command("export")
@command
def export_acts(
    call: Remote, file: Annotated[Path, typer.Argument(help="File to write; must not exist.", show_default=False)]
) -> None:
    """Download every administrative act, for `grovekeeper verify`."""
    check_new(file)
    with call.client() as client:
        digest = client.export_acts(file)
    call.output.answer({"file": str(file), "sha256": digest})
    call.output.say(f"wrote {file}")
    call.output.hint(f"grovekeeper verify {file}")


@act_commands.command("checkpoint")
@command
def checkpoint_of_acts(call: Remote, file: NewFile = None) -> None:
    """Download the signed head of the administrative acts, to check later exports against."""
    if file is not None:
        check_new(file)
    with call.client() as client:
        note = client.checkpoint_of_acts()
    give(call.output, note, file=file, as_json={"log": "control", "checkpoint": note})


def _details(facts: dict[str, Any]) -> str:
    """The facts of an act on one line."""
    texts = {
        name: " ".join(fact) or "none"
        if isinstance(fact, list)
        else json.dumps(fact)
        if isinstance(fact, dict)
        else fact
        for name, fact in facts.items()
    }
    return ", ".join(f"{name}: {text}" for name, text in texts.items())
