"""Implements ``grovekeeper ledger charge`` and ``reservations``: charges for external mechanisms."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.arguments import DatasetArgument, ScopeOption, json_object, read_bytes, read_scope
from app.cli.command import Remote, WrongUse, command, one_attempt
from app.cli.output import GIVEN_EARLIER, Output, amount
from grovekeeper_client.errors import ApiProblem

if TYPE_CHECKING:  # httpx takes 0.11 s of CPU to import, which commands without a service need not spend
    from grovekeeper_client.client import Client


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

    def body(self, client: "Client", dataset: str, description: str) -> dict[str, Any]:
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


@command
def charge(
    call: Remote,
    dataset: DatasetArgument,
    description: Annotated[str, typer.Option(help="What will run; the entries keep it.", show_default=False)],
    stated: Stated,
    quote: Annotated[bool, typer.Option("--quote", help="Quote the price and charge nothing.")] = False,
    idempotency_key: Annotated[str | None, typer.Option(help="Continue an earlier attempt.")] = None,
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
