"""Writes administrative acts as sentences for people."""

from collections.abc import Mapping, Sequence
from typing import Any

from markupsafe import Markup

from app.api.pages.words import minute
from app.ledger import control
from app.wire.ledger import ActKind, ActOut

_SENTENCES: Mapping[ActKind, Markup] = {
    "open": Markup("The list of acts begins."),
    "key-made": Markup("Issued the key {key}{roles}{expires_at}."),
    "key-rotated": Markup("Rotated the secret of the key {key}{expires_at}."),
    "key-revoked": Markup("Revoked the key {key}."),
    "subject-admitted": Markup("Signed in for the first time by the identity provider{roles}."),
    "subject-roles": Markup("Signed in with other roles of the identity provider{roles}."),
    "grant-made": Markup("Granted {key} the role {role} on {dataset}."),
    "grant-removed": Markup("Revoked the role of {key} on {dataset}."),
    "dataset-declared": Markup("Declared the dataset {dataset}{before}."),
    "dataset-deleted": Markup("Erased all rows of {dataset}."),
    "unit-erased": Markup("Erased the rows of one privacy unit in {dataset}."),
    "upload-erased": Markup("Erased the upload {upload} of {dataset}."),
    "cap-changed": Markup("Changed the cap of {account}: {entry}."),
    "population-opened": Markup("Opened the population {population}."),
    "population-joined": Markup("Made {dataset} a member of the population {population}."),
    "signer-pinned": Markup("The heads are signed by {verifier_key} from here on."),
    "storage-key-changed": Markup("Data keys are wrapped by the storage key {storage_key} from here on."),
    "rules-changed": Markup("Put rules in force on {dataset}{proposed_by}: {rules}."),
    "rules-proposed": Markup("Proposed looser rules on {dataset}: {rules}."),
    "job-approved": Markup("Approved the job {job} on {datasets}. Reason: {reason}"),
    "job-rejected": Markup("Rejected the job {job} on {datasets}. Reason: {reason}"),
    "history-lost": Markup("Accepted a restored backup that lacks entries of {account}."),
    "alias-moved": Markup("Made the alias {alias} of {dataset} name the model {model}."),
    "alias-removed": Markup("Removed the alias {alias} of {dataset}."),
    "model-deleted": Markup("Deleted the model {model} of {dataset}."),
    "webhook-made": Markup("Made a webhook for {dataset}: {webhook}."),
    "webhook-removed": Markup("Removed the webhook {webhook} of {dataset}."),
}
"""Sentences by kind of an act. Their subject is the key that acted, unless they name another."""


def act_in_words(act: ActOut, names: Mapping[str, str]) -> Markup:
    """An act as a sentence with links.

    Args:
        act: the act.
        names: of keys, datasets, populations and models, by id.
    """
    details = act.details
    words = {name: _detail(name, value, details, names) for name, value in details.items()}
    optional = {"expires_at": "", "proposed_by": ""}
    if act.kind == "cap-changed":
        words["entry"] = _link(f"/ui/ledger/{details['account']}/entries/{details['sequence']}", "its ledger entry")
    if act.kind == "dataset-declared":
        words["before"] = _before(details, names)
    return _SENTENCES[act.kind].format(**{**optional, **words})


def _before(details: Mapping[str, Any], names: Mapping[str, str]) -> Markup | str:
    """The relation of a new dataset to the erased dataset of its name, if there is one."""
    if "continues" in details:
        return Markup(", which continues the account of the erased {}").format(_dataset(details["continues"], names))
    if "erased" in details:
        words = Markup(", whose rows are about other people than those of the erased {}. Reason: {}")
        return words.format(_dataset(details["erased"], names), details["other_people"])
    return ""


def _detail(name: str, value: Any, details: Mapping[str, Any], names: Mapping[str, str]) -> Markup | str:
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
            return "" if value is None else Markup(", as proposed by {}").format(named(value, names))
        case "role" | "reason":
            return str(value)
    return Markup("<code>{}</code>").format(value)


def named(reference: str, names: Mapping[str, str]) -> Markup:
    """A key or a model by its name, if it has a known one, and its id."""
    name = names.get(reference)
    return (
        Markup("<code>{}</code>").format(reference)
        if name is None
        else Markup("{} <code>{}</code>").format(name, reference)
    )


def _dataset(dataset: str, names: Mapping[str, str]) -> Markup:
    return _link(f"/ui/datasets/{dataset}", names.get(dataset, dataset))


def _link(address: str, words: str) -> Markup:
    return Markup('<a href="{}">{}</a>').format(address, words)


def _roles(roles: Sequence[str]) -> str:
    if not roles:
        return ", without a global role"
    return f", with the global {'role' if len(roles) == 1 else 'roles'} {', '.join(roles)}"


def _rules(rules: Mapping[str, Any], names: Mapping[str, str]) -> Markup:
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
