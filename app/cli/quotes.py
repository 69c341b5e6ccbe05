"""Prints quotes: price, what is left, odds, expected accuracy, and the draws on request."""

import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from app.cli.output import GIVEN_EARLIER, Output, amount


def show_quote(output: Output, quote: dict[str, Any], *, what: str, receipt: bool, recover: int | None = None) -> None:
    """Prints a quote for people, both parts where a job has two.

    Args:
        output: where the command prints.
        quote: the answer of the service.
        what: names the output of the job.
        receipt: whether to print every draw that the price pays for.
        recover: the recovered share, in percent, whose ε is shown.
    """
    also = quote.get("unlabelled")
    _show_part(output, quote, what=what if also is None else f"{what}, its part with labels,")
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
    refusing = [part["dataset_name"] for part in (quote, also) if part is not None and not part["fits"]]
    if refusing:
        output.hint(*(f"grovekeeper ledger show {name}" for name in dict.fromkeys(refusing)))


_LIMITS = {
    "cap": "the cap",
    "population": "the cap of the population {population}, which leaves less than the dataset's own cap",
    "rules": "a rule of the dataset, which admits less than the cap",
}


def _show_part(output: Output, part: dict[str, Any], *, what: str) -> None:
    """Prints what a job costs on one account, why, and what is left."""
    price, why = part["price"], part.get("why")
    output.say(f"{what} on {part['dataset_name']}" + (f": {why}" if why else ""))
    in_unit = "no more, no less" if price["delta"] is None else f"{amount(price)}, no more, no less"
    left = f"{part['remaining']} of {amount({**part, 'unit': price['unit']}, 'cap')}"
    if part["fits"]:
        rest = part["left_afterwards"]
        left += f"; after this job, {f'ε up to {rest}' if Fraction(rest) else 'nothing'} would fit"
    output.facts(
        {
            "  price": f"{_epsilon_delta(price)} ({in_unit})",
            "  left": left,
            "  largest ε that fits": part["largest_that_fits"] + ("" if part["fits"] else ": this job does not fit"),
            "  limited by": _LIMITS[part["limited_by"]].format(population=part["population"]),
        }
    )
    output.odds(part["odds"], condition=GIVEN_EARLIER)
    if part["needs_approval"]:
        output.say(f"The job would wait for the approval of another owner of {part['dataset_name']}.")
    output.say()


def _epsilon_delta(price: Mapping[str, Any]) -> str:
    """The price as it was requested."""
    return f"ε = {price['epsilon']}" + ("" if price["delta"] is None else f" at δ = {price['delta']}")


def expected(expected: Mapping[str, Any], *, recover: int | None) -> str:
    """What similar public tables recovered at this ε, and the ε at which they recovered the needed share."""
    sentences = [expected["sentence"]] if expected["sentence"] else []
    if band := expected["band"]:
        low, middle, high = (round(100 * band[name]) for name in ("low", "middle", "high"))
        names = ", ".join(table["table"] for table in expected["tables"])
        sentences.append(
            f"Similar public tables ({names}) recovered {low} to {high} %, in the middle {middle} %, of what a forest "
            "without privacy gains over the largest class."
        )
    if expected["note"]:
        sentences.append(expected["note"])
    if recover is not None:
        reached = [at["epsilon"] for at in expected["curve"] if 100 * at["middle"] >= recover]
        needed = f"from ε = {reached[0]} on" if reached else "at no ε that was measured"
        sentences.append(f"Similar tables recovered {recover} % {needed}.")
    return " ".join(["Expected accuracy:", *sentences, "This is no statement about your rows."])


def _of_profile(reused: Mapping[str, Any]) -> str:
    """The numbers of a profile that a plan uses."""
    made_for = json.dumps(reused["scope"], ensure_ascii=False) if reused["scope"] else "all cells"
    profile = f"profile {reused['id']} of {reused['dataset_name']} ({made_for})"
    used = f"uses the bins of {profile} at no cost" if reused["is_used"] else f"needs no bins of {profile}"
    return f"{used}." if reused["size"] is None else f"{used}; the rules assume {reused['size']} rows."
