"""``grovekeeper ledger`` and ``populations``: ``checkpoint``, ``proof`` and ``signer``: evidence to take away.
``verify``: its check."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli import populations
from app.cli.arguments import DatasetArgument, check_new
from app.cli.command import Plain, Remote, WrongUse, command
from app.cli.ledger import app
from app.cli.output import Output
from app.cli.populations import PopulationArgument

if TYPE_CHECKING:
    from app.client.client import Client

NewFile = Annotated[
    Path | None, typer.Argument(help="Where to; must not exist. Printed if left out.", show_default=False)
]

ProvenSequence = Annotated[
    int | None, typer.Option(min=1, help="Prove that this entry is in the log.", show_default=False)
]
ProvenFrom = Annotated[
    int | None, typer.Option(min=1, help="Prove that the log only grew since this size.", show_default=False)
]
ProvenTo = Annotated[
    int | None, typer.Option(min=1, help="Size of the checkpoint; default the newest.", show_default=False)
]


@app.command("checkpoint")
@command
def checkpoint(call: Remote, dataset: DatasetArgument, file: NewFile = None) -> None:
    """Take the signed head of a dataset's log: what later exports are held to."""
    _check_new(file)
    with call.client() as client:
        note = client.checkpoint(dataset)
    _give(call.output, note, file=file, as_json={"dataset": dataset, "checkpoint": note})
    if file is not None:
        call.output.hint(f"grovekeeper verify {dataset}.jsonl --checkpoint {file} --public-key grovekeeper.pem")


@populations.app.command("checkpoint")
@command
def population_checkpoint(call: Remote, population: PopulationArgument, file: NewFile = None) -> None:
    """Take the signed head of a population's log: what later exports are held to."""
    _check_new(file)
    with call.client() as client:
        note = client.population_checkpoint(population)
    _give(call.output, note, file=file, as_json={"population": population, "checkpoint": note})
    if file is not None:
        call.output.hint(f"grovekeeper verify {population}.jsonl --checkpoint {file} --public-key grovekeeper.pem")


@app.command("proof")
@command
def proof(
    call: Remote,
    dataset: DatasetArgument,
    file: NewFile = None,
    sequence: ProvenSequence = None,
    from_size: ProvenFrom = None,
    size: ProvenTo = None,
) -> None:
    """Take a proof of inclusion (--sequence) or of consistency (--from-size)."""

    def ask(client: "Client", at: int, *, is_inclusion: bool) -> dict[str, Any]:
        return (client.inclusion if is_inclusion else client.consistency)(dataset, at, size=size)

    _take_proof(call, ask, file, sequence=sequence, from_size=from_size)


@populations.app.command("proof")
@command
def population_proof(
    call: Remote,
    population: PopulationArgument,
    file: NewFile = None,
    sequence: ProvenSequence = None,
    from_size: ProvenFrom = None,
    size: ProvenTo = None,
) -> None:
    """Take a proof of inclusion (--sequence) or of consistency (--from-size)."""

    def ask(client: "Client", at: int, *, is_inclusion: bool) -> dict[str, Any]:
        proven = client.population_inclusion if is_inclusion else client.population_consistency
        return proven(population, at, size=size)

    _take_proof(call, ask, file, sequence=sequence, from_size=from_size)


@app.command("signer")
@command
def signer(call: Remote, file: NewFile = None) -> None:
    """Take the public key that checkpoints are checked with."""
    _check_new(file)
    with call.client() as client:
        found = client.signer()
    _give(call.output, found["public_key"], file=file, as_json=found)


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
) -> None:
    """Check the export of a dataset or a population: chain, sums, caps, prices; or a proof. Needs no service."""
    from app.verifier import main as verifier

    if bool(checkpoint) != (public_key is not None):
        raise WrongUse("a checkpoint is checked with a public key: give --checkpoint and --public-key, or neither")
    evidence = verifier.Evidence(tuple(checkpoint or ()), public_key, tuple(member or ()))
    raise typer.Exit(verifier.run(file, evidence, as_json=call.as_json))


def _take_proof(
    call: Remote, ask: Callable[..., dict[str, Any]], file: Path | None, *, sequence: int | None, from_size: int | None
) -> None:
    """Asks for the one of the two proofs that was wanted."""
    _check_new(file)
    if (sequence is None) == (from_size is None):
        raise WrongUse("give --sequence or --from-size")
    with call.client() as client:
        found = ask(client, sequence or from_size, is_inclusion=sequence is not None)
    _give(call.output, json.dumps(found, ensure_ascii=False) + "\n", file=file, as_json=found)


def _check_new(file: Path | None) -> None:
    if file is not None:
        check_new(file)


def _give(output: Output, text: str, *, file: Path | None, as_json: dict[str, object]) -> None:
    if file is not None:
        file.write_text(text, encoding="utf-8")
    if output.as_json:
        output.json(as_json)
    elif file is None:
        print(text, end="")
    else:
        output.say(f"wrote {file}")
