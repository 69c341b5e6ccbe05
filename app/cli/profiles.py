"""Implements ``grovekeeper profiles``: releases and shows bins, class counts and numbers of rows of datasets."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import typer

from app.cli.arguments import (
    AttemptOption,
    DatasetArgument,
    DeltaOption,
    PurposeOption,
    ReceiptOption,
    ScopeOption,
    WaitOption,
    as_typed,
    read_scope,
)
from app.cli.command import Client, Remote, command, one_attempt
from app.cli.jobs import price_of, show_accepted, show_quote
from app.cli.training import read_parameters

app = typer.Typer(help="Release profiles of datasets, and look at them.", no_args_is_help=True)


@dataclass(frozen=True)
class ProfileOptions:
    """Options of a profile: its dataset and its budget."""

    dataset: DatasetArgument
    epsilon: Annotated[str, typer.Option("--epsilon", "-e", help="Exact decimal, such as 0.2.", show_default=False)]
    delta: DeltaOption = None
    parameter: Annotated[
        list[str] | None,
        typer.Option("--parameter", "-p", help="bins, class_share or size_share, as name=value.", show_default=False),
    ] = None
    scope: ScopeOption = None

    def as_typed(self) -> str:
        """These options as a user types them."""
        return as_typed([self.dataset], vars(self) | {"dataset": None})

    def to_json(self, client: Client) -> dict[str, Any]:
        """The body. ε and δ are sent as they were typed, never converted to a float."""
        return {
            "epsilon": self.epsilon,
            **({} if self.delta is None else {"delta": self.delta}),
            "parameters": read_parameters(self.parameter),
            "scope": read_scope(self.scope, partial(client.dataset, self.dataset)),
        }


@app.command("quote")
@command
def quote(call: Remote, request: ProfileOptions, receipt: ReceiptOption = False) -> None:
    """Quote a profile. Reads no row and costs nothing."""
    with call.client() as client:
        answer = client.quote_profile(request.dataset, request.to_json(client))
    call.output.answer(answer)
    show_quote(call.output, answer, what="a profile", receipt=receipt)
    if answer["fits"]:
        call.output.hint(f"grovekeeper profiles release {request.as_typed()} --wait")


@app.command("release")
@command
def release(
    call: Remote,
    request: ProfileOptions,
    name: Annotated[str | None, typer.Option(help="A name for the profile.", show_default=False)] = None,
    purpose: PurposeOption = None,
    wait: WaitOption = False,
    idempotency_key: AttemptOption = None,
) -> None:
    """Reserve budget and release a profile, which later jobs reuse with --profile at no privacy cost."""
    with call.client() as client:
        body = request.to_json(client) | {"name": name, "purpose": purpose}
        with one_attempt(call.output, idempotency_key) as key:
            accepted = client.release_profile(request.dataset, body, idempotency_key=key)
        show_accepted(client, accepted, call.output, wait=wait)


@app.command("list")
@command
def list_profiles(call: Remote, dataset: DatasetArgument) -> None:
    """List the profiles of a dataset, newest first."""
    with call.client() as client:
        profiles = list(client.profiles(dataset))
    call.output.answer({"profiles": profiles})
    rows = [[item["id"], item["name"], price_of(item), item["created_at"]] for item in profiles]
    call.output.table(["id", "name", "price", "released"], rows, empty="no profiles")


@app.command("show")
@command
def show(
    call: Remote,
    profile_id: Annotated[str, typer.Argument(help="Id of the profile.", show_default=False, metavar="PROFILE")],
    receipt: ReceiptOption = False,
) -> None:
    """Show a profile: noisy class counts and size, edges of the bins, the guarantee, and the receipt on request."""
    with call.client() as client:
        profile = client.profile(profile_id)
    output = call.output
    output.answer(profile)
    output.facts(
        {
            "profile": profile["id"],
            "name": profile["name"],
            "dataset": profile["dataset_name"],
            "released": profile["created_at"],
            "price": price_of(profile),
        }
    )
    counts = [*profile["class_counts"], {"label": "(all rows)", **profile["size"]}]
    rows = [[item["label"], f"{item['count']:.1f}", f"{item['noise_sd']:.1f}"] for item in counts]
    output.table(["class", "noisy rows", "± (noise sd)"], rows, empty="no classes")
    bins = [[item["name"], ", ".join(f"{edge:g}" for edge in item["edges"])] for item in profile["features"]]
    output.table(["number", "edges of its bins"], bins, empty="no number needs private bins")
    output.say()
    output.guarantee(profile["guarantee"])
    if receipt:
        output.say()
        output.say(profile["receipt"])
    output.hint(f"grovekeeper plan {profile['dataset_name']} --epsilon 1 --profile {profile['id']}")
