"""Implements ``grovekeeper algorithms``, ``plan`` and ``train``: lists algorithms,
quotes and trains forests.
"""

import shlex
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Annotated

import typer

from grovekeeper_client.cli import problems
from grovekeeper_client.cli.command import (
    Client,
    DatasetArgument,
    DeltaOption,
    LabelOption,
    PurposeOption,
    ReceiptOption,
    Remote,
    ScopeOption,
    Submission,
    WrongUse,
    as_typed,
    command,
    given,
    option,
    read_scope,
)
from grovekeeper_client.cli.jobs import show_quote, submit
from grovekeeper_client.cli.output import Output
from grovekeeper_common import strict_json
from grovekeeper_common.json_types import JsonMapping, JsonObject


@dataclass(frozen=True)
class PlanOptions:
    """Options of a training job: algorithm, rows and budget."""

    dataset: DatasetArgument
    algorithm: str = option(
        "See: grovekeeper algorithms", "--algorithm", "-a", default="auto"
    )
    epsilon: str | None = option("Exact decimal, such as 0.7.", "--epsilon", "-e")
    delta: DeltaOption = None
    parameter: list[str] | None = option(
        "name=value; may be repeated.", "--parameter", "-p"
    )
    scope: ScopeOption = None
    label: LabelOption = None

    profile: str | None = option("Id of a profile to reuse at no privacy cost.")

    unlabelled: str | None = option(
        "For sspe-1: the second dataset, or the same dataset with another scope."
    )
    unlabelled_epsilon: str | None = option(
        "ε of the second dataset; default --epsilon."
    )
    unlabelled_delta: str | None = option(
        "δ of the second dataset, if its account has one."
    )
    unlabelled_scope: list[str] | None = option(
        "Scope of the second dataset, as --scope; default all cells."
    )

    def as_typed(self) -> str:
        """These options as a user types them."""
        algorithm = None if self.algorithm == "auto" else self.algorithm
        return as_typed(
            [self.dataset], vars(self) | {"dataset": None, "algorithm": algorithm}
        )

    def to_json(self, client: Client) -> JsonObject:
        """The body of ``POST /plans``. ε and δ are sent as they were typed, never
        converted to a float.

        Raises:
            WrongUse: the options name no ε.
        """
        if self.epsilon is None:
            raise WrongUse(
                f"--epsilon is missing; the largest that fits: grovekeeper plan {shlex.quote(self.dataset)} --largest"
            )
        return given(
            dataset=self.dataset,
            algorithm=self.algorithm,
            epsilon=self.epsilon,
            delta=self.delta,
            parameters=read_parameters(self.parameter),
            scope=read_scope(self.scope, partial(client.dataset, self.dataset)),
            label=self.label,
            profile=self.profile,
            unlabelled=self._unlabelled(client),
        )

    def at_largest(self, client: Client) -> "PlanOptions":
        """These options at the largest ε that fits now.

        Raises:
            WrongUse: the options name an ε, or a second dataset.
        """
        if self.epsilon is not None or self.unlabelled is not None:
            raise WrongUse(
                "--largest goes neither with --epsilon nor with --unlabelled"
            )
        quote = client.plan(replace(self, epsilon="1").to_json(client))
        return replace(self, epsilon=quote["largest_that_fits"])

    def _unlabelled(self, client: Client) -> JsonObject | None:
        epsilon = self.unlabelled_epsilon
        delta = self.unlabelled_delta
        scope = self.unlabelled_scope
        if self.unlabelled is None:
            if (epsilon, delta, scope) != (None, None, None):
                raise WrongUse(
                    "--unlabelled names the dataset that the other --unlabelled options are about"
                )
            return None
        cells = (
            None
            if scope is None
            else read_scope(scope, partial(client.dataset, self.unlabelled))
        )
        return given(
            dataset=self.unlabelled,
            epsilon=epsilon or self.epsilon,
            delta=delta,
            scope=cells,
        )


@command
def algorithms(
    call: Remote,
    slugs: Annotated[
        list[str] | None,
        typer.Argument(metavar="ALGORITHM", help="Algorithms to show in full."),
    ] = None,
) -> None:
    """List the algorithms, or show some: what their papers claim, what runs here,
    accuracy, parameters.
    """
    with call.client() as client:
        listed = client.algorithms()
    unknown = [
        slug for slug in slugs or () if slug not in {item["slug"] for item in listed}
    ]
    if unknown:
        meant = problems.question(
            problems.similar(unknown, [item["slug"] for item in listed])
        )
        raise WrongUse(
            f"there is no algorithm {unknown[0]}{meant or '; see: grovekeeper algorithms'}"
        )
    listed = [item for item in listed if not slugs or item["slug"] in slugs]
    call.output.answer({"algorithms": listed})
    if not slugs:
        rows = [
            [item["slug"], ", ".join(item["accountants"]), item["title"]]
            for item in listed
        ]
        call.output.table(
            ["algorithm", "accounts", "title"], rows, empty="no algorithms"
        )
        call.output.hint(
            "grovekeeper algorithms ALGORITHM    (claims, accuracy, parameters)"
        )
        return
    for item in listed:
        call.output.say(f"{item['slug']}: {item['title']} ({item['source']})")
        call.output.say(f"  accounts: {', '.join(item['accountants'])}")
        _show_about(call.output, item["about"])
        rows = [
            [p["name"], _range(p), p.get("description")] for p in item["parameters"]
        ]
        call.output.table(
            ["parameter", "values (default)", "meaning"],
            rows,
            empty="no parameters",
            indent=2,
        )
        call.output.say()


def _show_about(output: Output, about: JsonMapping) -> None:
    for heading in ("claimed", "wrong", "here"):
        if about[heading] is not None:
            output.say(f"  {heading}: {about[heading]}")
    for terms, measured in groupby(
        about["accuracy"], key=itemgetter("accountant", "epsilon")
    ):
        numbers = ", ".join(
            f"{result['dataset']} {result['percent']} %" for result in measured
        )
        output.say(
            f"  accuracy at ε = {terms[1]} ({terms[0]}): {numbers}; {about['results']}"
        )
    output.say(f"  proof: {about['proof']}")


RecoverOption = Annotated[
    int | None,
    typer.Option(min=1, max=100,
        help="Show the ε at which similar public tables recovered this percentage of a non-private forest's gain.",
    ),
]  # fmt: skip


@command
def plan(
    call: Remote,
    request: PlanOptions,
    largest: bool = option(
        "Quote the largest ε that fits.", "--largest", default=False
    ),
    recover: RecoverOption = None,
    receipt: ReceiptOption = False,
) -> None:
    """Quote a training job. Reads no row and costs nothing."""
    with call.client() as client:
        if largest:
            request = request.at_largest(client)
            if not Fraction(request.epsilon or 0):
                raise WrongUse(
                    f"no ε fits; see: grovekeeper ledger show {shlex.quote(request.dataset)}"
                )
        quote = client.plan(request.to_json(client))
    output = call.output
    output.answer(quote)
    show_quote(output, quote, what=quote["algorithm"], receipt=receipt, recover=recover)
    if quote["fits"] and (quote["unlabelled"] is None or quote["unlabelled"]["fits"]):
        output.hint(f"grovekeeper train {request.as_typed()} --wait")


@command
def train(
    call: Remote,
    request: PlanOptions,
    how: Submission,
    name: str | None = option("A name for the model."),
    purpose: PurposeOption = None,
) -> None:
    """Reserve budget and train a forest."""
    with call.client() as client:
        body = request.to_json(client) | {"name": name, "purpose": purpose}
        submit(
            client,
            partial(client.train, body),
            call.output,
            how,
        )


def _range(parameter: JsonObject) -> str:
    values = parameter["type"]
    if "choices" in parameter:
        values = ", ".join(map(str, parameter["choices"]))
    elif "minimum" in parameter:
        values = f"{parameter['minimum']} to {parameter['maximum']}"
    default = parameter.get("default")
    return f"{values} ({'by rule' if default is None else default})"


def read_parameters(texts: list[str] | None) -> dict[str, object]:
    """Parameters that were typed as ``name=value``."""
    return dict(map(_parameter, texts or ()))


def _parameter(text: str) -> tuple[str, object]:
    name, separator, value = text.partition("=")
    if not (name and separator):
        raise WrongUse("a parameter is given as name=value")
    try:
        return name, strict_json.loads(value.encode("utf-8", "surrogateescape"))
    except (ValueError, RecursionError):
        # also NaN, which no body can hold: the service says what it takes
        return name, value
