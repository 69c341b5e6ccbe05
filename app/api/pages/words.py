"""Writes amounts, times and administrative acts as words for people.

Prices round up, what fits rounds down. The amounts of a balance are never rounded: they
add up to the cap, and equal those of the API and of the ledger.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any
from urllib.parse import quote, urlencode

from markupsafe import Markup

from app.api.addresses import base
from app.ledger import control
from app.services.ledger.audit import CapChange
from app.wire.acts import ActKind, ActOut
from app.wire.spending import PriceOut
from grovekeeper_common.job_words import REASONS
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.limit_words import LimitedBy, limit_in_words
from grovekeeper_forests.amounts import SYMBOLS

_DIGITS = 4
_LISTED = 12


def spent(amount: str) -> str:
    """An amount that was spent, with at most four significant digits, rounded up."""
    return _rounded(amount, ROUND_CEILING)


def left(amount: str) -> str:
    """An amount that is left, with at most four significant digits, rounded down."""
    return _rounded(amount, ROUND_FLOOR)


def plain(amount: Decimal) -> str:
    """An exact amount without an exponent, and without zeros at its end."""
    whole, _, places = f"{amount:f}".partition(".")
    places = places.rstrip("0")
    return f"{whole}.{places}" if places else whole


def price(price: PriceOut) -> str:
    """A price with the symbol of its unit."""
    return f"{spent(price.amount)} {SYMBOLS[price.unit]}"


def listed(values: Sequence[object]) -> str:
    """The first values of a list, and how many more there are."""
    shown = ", ".join(map(str, values[:_LISTED]))
    more = len(values) - _LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def query_of(fields: Mapping[str, str], cursor: str = "") -> str:
    """The query of an address that keeps the fields of a search; without empty ones.

    Args:
        cursor: of the page that follows; the first page by default.
    """
    given = {**fields, "cursor": cursor}
    kept = {name: text for name, text in given.items() if text}
    return urlencode(kept, quote_via=quote, safe="/")


def limited(limited_by: LimitedBy, population: str | None = None) -> str:
    """The limit that decides how much fits, as the end of a sentence; nothing for the
    cap of the account.
    """
    if limited_by == "cap":
        return ""
    return f", limited by {limit_in_words(limited_by, population)}"


def unit_of(column: str | None) -> str:
    """What a guarantee protects: a row, or a value of the unit column. A person spelt
    in two ways has two values.
    """
    return f"value of {column}" if column else "row"


def who(key_id: str, name: str | None) -> str:
    """A key by its name, where the reader may know it, and its id."""
    return key_id if name is None else f"{name} ({key_id})"


def entry(fields: JsonMapping, symbol: str, ended: str | None = None) -> str:
    """What an entry of a ledger says, as a sentence; ``ended`` is the reason with which
    its job ended, if known.
    """
    details = fields.get("details") or {}
    purpose = f"job {fields['job_id']}"
    if "label" in details:
        purpose += f" (label {details['label']})"
    if "attested_by" in details:
        attester = details["attested_by"]
        description = details["description"]
        purpose = (
            f"a mechanism outside the service, attested by {attester}: {description}"
        )
    words = {
        "amount": f"{fields['amount']} {symbol}",
        "purpose": purpose,
        "reason": details.get("reason"),
        "member": details.get("member", {}).get("dataset"),
        "erased": details.get("continues", {}).get("dataset"),
        # without what followed, which is this entry
        "why": REASONS.get(ended or "", "the job did not start in time").partition(
            ", so"
        )[0],
    }
    kind = "opening-load" if "continues" in details else fields["kind"]
    return _ENTRIES[kind].format(**words)


_ENTRIES: Mapping[str, str] = {
    "open": "The account was opened with a cap of {amount}.",
    "opening-load": "The account goes on from that of the erased dataset {erased}, which had spent {amount} in its "
    "tightest cell.",
    "reserve": "{amount} was reserved for {purpose}.",
    "charge": "{amount} was charged for {purpose}. A charge is final.",
    "void": "The reservation of {amount} for {purpose} was given back, because the job did not read a row.",
    "expire": "The reservation of {amount} for {purpose} was given back, because {why}.",
    "cap": "The cap was changed to {amount}. Reason: {reason}",
    "join": "The dataset {member} became a member. Its load was {amount}: what its tightest cell had spent and "
    "reserved.",
    "load": "From here on, the load of the member {member} is {amount}: what its tightest cell has spent and reserved.",
    "state": "The state of the account was stated, so that a process that starts need not read the entries before.",
}
"""Sentences by kind of an entry; an opening load is an entry of the kind ``load``."""


def sentence(detail: str) -> str:
    """The detail of a problem as a sentence."""
    return f"{detail[:1].upper()}{detail[1:]}{'' if detail.endswith('.') else '.'}"


def field_problem(problem: str, accepted: Sequence[str] | None = None) -> str:
    """A problem of a field as a sentence."""
    if problem in _FIELD_PROBLEMS:
        return _FIELD_PROBLEMS[problem]
    words = f"{problem.replace('-', ' ').capitalize()}."
    if not accepted:
        return words
    return f"{words} Accepted: {', '.join(accepted[:12])}."


_FIELD_PROBLEMS: Mapping[str, str] = {
    "required": "Needed.",
    "missing": "Needed.",
    "not-ticked": "Tick that the identity of the person was checked.",
    "empty": "Must not be empty.",
    "too-few": "Needs more values.",
    "one-of-these": "State an ε or an error, not both.",
    "above-upper": "Larger than the upper bound.",
    "not-below-upper": "Must be below the upper bound.",
    "not-for-numbers": "Not for a label that is a number.",
    "not-distinct": "Occurs twice.",
    "not-with-auto": "auto chooses the parameters itself: name an algorithm to set them.",
    "not-a-number": "Not a number.",
    "not-an-integer": "Not a whole number.",
    "not-of-dates": "A sum of dates means nothing; a mean, a median and quantiles do.",
    "not-a-date": "Not a date, such as 2024-02-29.",
    "needs-a-unit-column": "More than one row needs a column that names the person.",
    "not-a-plain-integer": "An integer without leading zeros, signs and points.",
    "without-entries": "No key of this id or name caused an entry here.",
    "like-a-secret": "Holds a key or a token, which others would read here.",
    "unit-of-another-accountant": "ρ is of zcdp accounts and μ of gdp accounts; every account takes ε.",
    "delta-required": "This kind of account needs a δ.",
}
"""Sentences for problems of fields that their slugs do not explain."""


def minute(time: str) -> str:
    """A time to the minute, in UTC."""
    return f"{time[:10]} {time[11:16]}"


def day(time: str) -> str:
    """The day of a time, in UTC."""
    return time[:10]


def clock(time: str) -> str:
    """The hour and minute of a time, in UTC."""
    return time[11:16]


def _rounded(amount: str, rounding: str) -> str:
    exact = Decimal(amount)
    if not exact:
        return "0"
    place = Decimal(1).scaleb(min(exact.adjusted() - _DIGITS + 1, 0))
    shown = exact.quantize(place, rounding=rounding)
    return f"{shown.normalize():f}"


_SENTENCES: Mapping[ActKind, str] = {
    "open": "The list of acts begins.",
    "key-made": "Issued the key {key}{roles}{expires_at}.",
    "key-rotated": "Rotated the secret of the key {key}{expires_at}.",
    "key-revoked": "Revoked the key {key}.",
    "subject-admitted": "Signed in for the first time by the identity provider{roles}.",
    "subject-roles": "Signed in with other roles of the identity provider{roles}.",
    "grant-made": "Granted {key} the role {role} on {dataset}.",
    "grant-removed": "Revoked the role of {key} on {dataset}.",
    "dataset-declared": "Declared the dataset {dataset}{before}.",
    "dataset-changed": "Changed the declared columns of {dataset}, from the SHA-256 {before} to {after}.",
    "dataset-deleted": "Erased all rows of {dataset}.",
    "unit-erased": "Erased the rows of one privacy unit in {dataset}{request}.",
    "upload-erased": "Erased the upload {upload} of {dataset}.",
    "cap-changed": "Changed the cap of {account} from {before} to {after}: {entry}. Reason: {reason}",
    "population-opened": "Opened the population {population}.",
    "population-joined": "Made {dataset} a member of the population {population}.",
    "signer-pinned": "The heads are signed by {verifier_key} from here on.",
    "storage-key-changed": "Data keys are wrapped by the storage key {storage_key} from here on.",
    "rules-changed": "Put rules in force on {dataset}{proposed_by}: {rules}.",
    "rules-proposed": "Proposed looser rules on {dataset}: {rules}.",
    "job-approved": "Approved the job {job} on {datasets}. Reason: {reason}",
    "job-rejected": "Rejected the job {job} on {datasets}. Reason: {reason}",
    "history-lost": "Accepted a restored backup that lacks entries of {account}.",
    "alias-moved": "Made the alias {alias} of {dataset} name the model {model}.",
    "alias-removed": "Removed the alias {alias} of {dataset}.",
    "model-deleted": "Deleted the model {model} of {dataset}.",
    "webhook-made": "Made a webhook for {dataset}: {webhook}.",
    "webhook-rotated": "Rotated the secret of the webhook {webhook} of {dataset}.",
    "webhook-removed": "Removed the webhook {webhook} of {dataset}.",
}
"""Sentences by kind of an act. Their subject is the key that acted, unless they name
another.
"""


def act_in_words(
    act: ActOut, names: Mapping[str, str], caps: Mapping[int, CapChange]
) -> Markup:
    """An act as a sentence with links; ``names`` are of keys, datasets, populations and
    models, by id, ``caps`` the changes of caps by the sequence of their acts.
    """
    details = act.details
    words = {
        name: _words_of_detail(name, value, names) for name, value in details.items()
    }
    optional = {"expires_at": "", "proposed_by": "", "request": ""}
    if "reference" in details:
        words["request"] = Markup(" (reference: {})").format(details["reference"])
    if act.kind == "cap-changed":
        words |= caps[act.sequence]
        words["entry"] = _link(
            f"/ui/ledger/{details['account']}/entries/{details['sequence']}",
            "its ledger entry",
        )
    if act.kind == "dataset-declared":
        words["before"] = _before(details, names)
    # the sentences are constants of this module
    return Markup(_SENTENCES[act.kind]).format(**{**optional, **words})  # noqa: S704


def _before(details: JsonMapping, names: Mapping[str, str]) -> Markup | str:
    """The relation of a new dataset to the erased dataset of its name, if there is one."""
    if "continues" in details:
        return Markup(", which continues the account of the erased {}").format(
            _dataset(details["continues"], names)
        )
    if "erased" in details:
        words = Markup(
            ", whose rows are about other people than those of the erased {}. Reason: {}"
        )
        return words.format(_dataset(details["erased"], names), details["other_people"])
    return ""


def _words_of_detail(name: str, value: Any, names: Mapping[str, str]) -> Markup | str:
    match name:
        case "dataset":
            return _dataset(value, names)
        case "datasets":
            return Markup(", ").join(_dataset(dataset, names) for dataset in value)
        case "account" if value == control.CHAIN:
            return _link("/ui/acts", "the acts")
        case "population" | "account":
            return _link(f"/ui/ledger/{value}", names.get(value, value))
        case "key" | "model":
            return named(value, names)
        case "roles":
            return _roles(value)
        case "rules":
            return _rules(value, names)
        case "expires_at":
            return f", until {minute(value)} UTC"
        case "proposed_by":
            if value is None:
                return ""
            return Markup(", as proposed by {}").format(named(value, names))
        case "role" | "reason":
            return str(value)
    return Markup("<code>{}</code>").format(value)


def named(reference: str, names: Mapping[str, str]) -> Markup:
    """A key or a model by its name, if it has a known one, and its id."""
    code = Markup("<code>{}</code>").format(reference)
    if reference not in names:
        return code
    return Markup("{} {}").format(names[reference], code)


def _dataset(dataset: str, names: Mapping[str, str]) -> Markup:
    return _link(f"/ui/datasets/{dataset}", names.get(dataset, dataset))


def _link(path: str, words: str) -> Markup:
    return Markup('<a href="{}{}">{}</a>').format(base(), path, words)


def _roles(roles: Sequence[str]) -> str:
    if not roles:
        return ", without a global role"
    noun = "role" if len(roles) == 1 else "roles"
    return f", with the global {noun} {', '.join(roles)}"


def _rules(rules: JsonMapping, names: Mapping[str, str]) -> Markup:
    """The rules of a dataset, the absent ones left out."""
    parts: list[Markup | str] = []
    if rules["frozen"]:
        parts.append("frozen")
    if rules["largest_job"] is not None:
        parts.append(f"no job above {rules['largest_job']}")
    if rules["approval_above"] is not None:
        parts.append(f"approval above {rules['approval_above']}")
    for quota in rules["quotas"]:
        keys = Markup(", ").join(named(key, names) for key in quota["keys"])
        parts.append(Markup("quota of {} for {}").format(quota["cap"], keys))
    if rules["erase_rows_at"] is not None:
        parts.append(f"rows are erased at {minute(rules['erase_rows_at'])} UTC")
    return Markup("; ").join(parts) if parts else Markup("no rule")
