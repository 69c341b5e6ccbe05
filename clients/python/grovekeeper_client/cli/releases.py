"""Implements ``grovekeeper evaluations`` and ``profiles``: releases and shows private
accuracy, bins and counts.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated

import typer

from grovekeeper_client.cli.command import (
    Client,
    DatasetArgument,
    DeltaOption,
    Group,
    LabelOption,
    ModelArgument,
    PurposeOption,
    ReceiptOption,
    Remote,
    ScopeOption,
    Submission,
    argument,
    as_typed,
    given,
    option,
    read_scope,
)
from grovekeeper_client.cli.jobs import price_of, show_head, show_quote, submit
from grovekeeper_client.cli.output import (
    NOTHING_TOLD,
    Output,
    error_with_interval,
    interval_in_words,
)
from grovekeeper_client.cli.statistics import show_each_table, show_errors
from grovekeeper_client.cli.training import read_parameters
from grovekeeper_common.json_types import JsonObject
from grovekeeper_common.number_words import (
    ON_TRAINING_ROWS,
    error_in_words,
    few_digits,
    mean_error_in_words,
    other_score_in_words,
    r2_in_words,
    share_in_words,
)

evaluation_commands = Group(
    "Evaluate models privately, and choose the best of several."
)

ModelsArgument = Annotated[list[str], argument("Ids of two or more models.")]


@dataclass(frozen=True)
class SpendOptions:
    """Options of an evaluation: its rows, its budget and its purpose."""

    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Exact decimal, such as 0.1.")
    ]
    delta: DeltaOption = None
    dataset: str | None = option("Dataset to evaluate on; default the model's dataset.")
    label: LabelOption = None
    largest_error: float | None = option(
        "Of models that predict a number: larger errors count as this one; "
        "default the range of the label."
    )
    scope: ScopeOption = None
    purpose: PurposeOption = None

    def to_json(self, client: Client, model_id: str) -> JsonObject:
        """The body. ε and δ are sent as they were typed, never converted to a float."""
        dataset = self.dataset
        scope = read_scope(
            self.scope,
            lambda: client.dataset(dataset or client.model(model_id)["dataset"]),
        )
        return given(
            epsilon=self.epsilon,
            delta=self.delta,
            dataset=dataset,
            label=self.label,
            largest_error=self.largest_error,
            purpose=self.purpose,
            scope=scope,
        )


MetricOption = Annotated[
    list[str] | None,
    typer.Option(
        "--metric",
        "-m",
        help="accuracy, confusion or auroc; mae, rmse or r2 where the label is a number; may be repeated.",
    ),
]


@evaluation_commands.command("quote")
def show_price(
    call: Remote,
    model_id: ModelArgument,
    spend: SpendOptions,
    metric: MetricOption = None,
    receipt: ReceiptOption = False,
) -> None:
    """Quote an evaluation. Reads no row and costs nothing."""
    with call.client() as client:
        answer = client.quote_evaluation(
            model_id,
            spend.to_json(client, model_id) | given(metrics=metric),
        )
    typed = as_typed([model_id], vars(spend) | {"metric": metric})
    _show_quote(
        call.output,
        answer,
        what="an evaluation",
        following=f"run {typed}",
        receipt=receipt,
    )


@evaluation_commands.command("run")
def run(
    call: Remote,
    model_id: ModelArgument,
    spend: SpendOptions,
    how: Submission,
    metric: MetricOption = None,
) -> None:
    """Reserve budget and evaluate a model. Choose held-out cells as the scope."""
    with call.client() as client:
        body = spend.to_json(client, model_id) | given(metrics=metric)
        submit(
            client,
            partial(client.evaluate, model_id, body),
            call.output,
            how,
            show=_show_made,
        )


@dataclass(frozen=True)
class SelectionOptions(SpendOptions):
    """Options of a choice of the best model: rows, budget and the best model's
    accuracy.
    """

    winner_accuracy: bool = option(
        "Half of the price for the winner's accuracy, or mean absolute error.",
        "--winner-accuracy",
        default=False,
    )
    quote: bool = option("Quote the price and spend nothing.", "--quote", default=False)
    receipt: ReceiptOption = False


@evaluation_commands.command("best")
def best(
    call: Remote,
    models: ModelsArgument,
    selection: SelectionOptions,
    how: Submission,
) -> None:
    """Reserve budget and choose the best of several models, for one price."""
    with call.client() as client:
        body = selection.to_json(client, models[0])
        body |= {"models": models, "winner_accuracy": selection.winner_accuracy}
        if selection.quote:
            typed = as_typed(
                models, vars(selection) | {"quote": False, "receipt": False}
            )
            what = f"a choice among {len(models)} models"
            answer = client.quote_selection(body)
            _show_quote(
                call.output,
                answer,
                what=what,
                following=f"best {typed}",
                receipt=selection.receipt,
            )
            return
        submit(
            client,
            partial(client.select_model, body),
            call.output,
            how,
            show=_show_made,
        )


@evaluation_commands.command("list")
def list_evaluations(call: Remote, model_id: ModelArgument) -> None:
    """List the evaluations of a model, newest first."""
    call.show_all(
        "evaluations",
        lambda client: client.evaluations(model_id),
        {
            "id": "id",
            "on": "dataset_name",
            "released": "releases",
            "best": "best",
            # Of a choice the accuracy is the best model's, which need not be the one
            # whose evaluations are listed.
            "accuracy": _score,
            "at": "created_at",
        },
    )


@evaluation_commands.command("show")
def show_evaluation(
    call: Remote,
    evaluation_id: Annotated[str, argument("Id of the evaluation.")],
    receipt: ReceiptOption = False,
) -> None:
    """Show an evaluation: accuracy with its interval, confusion matrix, AUROC, errors
    of predicted numbers, or the best model.
    """
    answer = call.ask(lambda client: client.evaluation(evaluation_id))
    _show_numbers(call.output, answer)
    call.output.promise(answer, receipt=receipt)
    call.output.warnings(answer)


def _show_quote(
    output: Output, answer: JsonObject, *, what: str, following: str, receipt: bool
) -> None:
    output.answer(answer)
    show_quote(output, answer, what=what, receipt=receipt)
    if answer["mae_half_width"] is not None:
        width = error_in_words(answer["mae_half_width"])
        output.say(
            f"Noise moves the mean absolute error by at most ± {width} at 95 %, and by less than half of that where "
            "errors are a tenth of the largest. It is in proportion to --largest-error; larger errors count as that."
        )
    if answer["fits"]:
        output.hint(f"grovekeeper evaluations {following} --wait")


def _show_made(client: Client, output: Output, job: JsonObject) -> None:
    evaluation = client.evaluation(job["evaluation_id"])
    _show_numbers(output, evaluation)
    output.warnings(evaluation)
    output.price_paid(evaluation, receipt=False, show="grovekeeper evaluations show")


def _show_numbers(output: Output, evaluation: JsonObject) -> None:
    output.facts(
        {
            "evaluation": evaluation["id"],
            "models": ", ".join(evaluation["models"]),
            "best": evaluation["best"],
            "dataset": evaluation["dataset_name"],
            "label": evaluation.get("label"),
            "price": price_of(evaluation),
            **_percent(evaluation["accuracy"]),
            **_errors(evaluation),
            "AUROC": _auroc(evaluation["auroc"]),
        }
    )
    if evaluation["confusion"]:
        classes = evaluation["confusion"]["classes"]
        rows = [
            [label, *(f"{count:.1f}" for count in counts)]
            for label, counts in zip(
                classes, evaluation["confusion"]["counts"], strict=True
            )
        ]
        output.table(
            ["true class", *(f"answered {label}" for label in classes)],
            rows,
            empty="no classes",
        )


def _score(item: JsonObject) -> str | None:
    """The accuracy of an evaluation, or the mean absolute error of one of numbers, or
    what else it released.
    """
    if item["mae"] is not None:
        return f"MAE {mean_error_in_words(item['mae'])[0]}"
    if item["accuracy"] is not None:
        return _percent(item["accuracy"])["accuracy"]
    return other_score_in_words(item)


def _errors(evaluation: JsonObject) -> dict[str, str | None]:
    """The errors of predicted numbers with their 95 % intervals; of classes, the
    accuracy beside which the model's is read.
    """
    if evaluation["largest_error"] is None:
        return {"largest class alone": _majority(evaluation["majority"])}
    shown: dict[str, str | None] = {
        "errors clamped at": few_digits(evaluation["largest_error"])
    }
    for name, words in (
        ("mae", "mean absolute error"),
        ("rmse", "root mean squared error"),
    ):
        if evaluation[name] is not None:
            shown[words] = error_with_interval(evaluation[name])
    if evaluation["r2"] is not None:
        value, interval = r2_in_words(evaluation["r2"])
        shown["R²"] = f"{value} ({interval})"
    return shown


def _auroc(auroc: JsonObject | None) -> str | None:
    if auroc is None:
        return None
    if auroc["estimate"] is None:
        return "not told: the noise outweighs the rows of a class"
    return f"{auroc['estimate']:.3f} (± {auroc['noise_sd']:.3f})"


def _majority(majority: JsonObject | None) -> str:
    """The accuracy of always answering the largest class, beside which the model's
    accuracy is read.
    """
    if majority is None:
        return "not released (a confusion matrix, or a profile of the same rows, would tell)"
    source = (
        "the confusion matrix"
        if majority["source"] == "confusion"
        else f"profile {majority['source']}"
    )
    return f"{share_in_words(majority['share'])} ({majority['label']}; noisy, from {source})"


def _percent(accuracy: JsonObject | None) -> dict[str, str]:
    """A noisy accuracy with its two intervals, or why it tells nothing; nothing where
    no accuracy was released.

    The second covers noise and sampling error, each with probability 0.95, so both with
    0.90 at least.
    """
    if accuracy is None:
        return {}
    if accuracy["estimate"] is None:
        return {"accuracy": NOTHING_TOLD}
    share = share_in_words(accuracy["estimate"])
    on = f" {ON_TRAINING_ROWS}" if accuracy["on_training_rows"] else ""
    return {
        "accuracy": share + on,
        "95 % interval, evaluated rows": interval_in_words(accuracy["interval"]),
        "90 % interval, other rows like them": interval_in_words(
            accuracy["population_interval"]
        ),
    }


profile_commands = Group("Release profiles of datasets, and look at them.")


@dataclass(frozen=True)
class ProfileOptions:
    """Options of a profile: its dataset and its budget."""

    dataset: DatasetArgument
    epsilon: Annotated[
        str, typer.Option("--epsilon", "-e", help="Exact decimal, such as 0.2.")
    ]
    delta: DeltaOption = None
    parameter: list[str] | None = option(
        "bins, class_share or size_share, as name=value.", "--parameter", "-p"
    )
    label: LabelOption = None
    scope: ScopeOption = None

    def as_typed(self) -> str:
        """These options as a user types them."""
        return as_typed([self.dataset], vars(self) | {"dataset": None})

    def to_json(self, client: Client) -> JsonObject:
        """The body. ε and δ are sent as they were typed, never converted to a float."""
        scope = read_scope(self.scope, partial(client.dataset, self.dataset))
        return given(
            epsilon=self.epsilon,
            delta=self.delta,
            label=self.label,
            parameters=read_parameters(self.parameter),
            scope=scope,
        )


@profile_commands.command("quote")
def quote(
    call: Remote, request: ProfileOptions, receipt: ReceiptOption = False
) -> None:
    """Quote a profile. Reads no row and costs nothing."""
    answer = call.ask(
        lambda client: client.quote_profile(request.dataset, request.to_json(client))
    )
    show_quote(call.output, answer, what="a profile", receipt=receipt)
    if answer["tables"]:
        call.output.say()
        show_errors(call.output, answer)
    if answer["fits"]:
        call.output.hint(f"grovekeeper profiles release {request.as_typed()} --wait")


@profile_commands.command("release")
def release(
    call: Remote,
    request: ProfileOptions,
    how: Submission,
    name: str | None = option("A name for the profile."),
    purpose: PurposeOption = None,
) -> None:
    """Reserve budget and release a profile, which later jobs reuse with --profile at no
    privacy cost.
    """
    with call.client() as client:
        body = request.to_json(client) | {"name": name, "purpose": purpose}
        submit(
            client,
            partial(client.release_profile, request.dataset, body),
            call.output,
            how,
        )


@profile_commands.command("list")
def list_profiles(call: Remote, dataset: DatasetArgument) -> None:
    """List the profiles of a dataset, newest first."""
    call.show_all(
        "profiles",
        lambda client: client.profiles(dataset),
        {"id": "id", "name": "name", "price": price_of, "released": "created_at"},
    )


@profile_commands.command("show")
def show_profile(
    call: Remote,
    profile_id: Annotated[str, argument("Id of the profile.", metavar="PROFILE")],
    receipt: ReceiptOption = False,
) -> None:
    """Show a profile: noisy class counts, or mean and quantiles of a label that is a
    number; the noisy size, edges of the bins, the guarantee, and the receipt on request.
    """
    profile = call.ask(lambda client: client.profile(profile_id))
    output = call.output
    show_head(output, "profile", profile)
    counts = [
        *profile["class_counts"],
        {"label": "(all rows with a label)", **profile["size"]},
    ]
    rows = [
        [item["label"], f"{item['count']:.1f}", f"{item['noise_sd']:.1f}"]
        for item in counts
    ]
    output.table(["class", "noisy rows", "± (noise sd)"], rows, empty="no classes")
    show_each_table(output, profile)
    bins = [
        [item["name"], ", ".join(map(few_digits, item["edges"]))]
        for item in profile["features"]
    ]
    output.table(
        ["number", "edges of its bins"], bins, empty="no number needs private bins"
    )
    output.promise(profile, receipt=receipt)
    output.hint(
        f"grovekeeper plan {profile['dataset_name']} --epsilon 1 --profile {profile['id']}"
    )
