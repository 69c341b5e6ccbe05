"""Formats results: a table for people and a JSON object for programs, with amounts as
exact decimal text.
"""

from collections.abc import Sequence

from grovekeeper_verifier.amounts import SYMBOLS
from grovekeeper_verifier.control_export import CONTROL, ControlSummary
from grovekeeper_verifier.dataset_export import Header
from grovekeeper_verifier.dataset_replay import Summary
from grovekeeper_verifier.member_comparison import Compared
from grovekeeper_verifier.population_export import PopulationHeader
from grovekeeper_verifier.population_replay import PopulationSummary

NO_CHECKPOINT = (
    "NOT CHECKED: whether these are the entries of the service. Without a checkpoint, a ledger that was written anew, "
    "or whose last entries are missing, looks the same. Give a signed checkpoint with --checkpoint and --public-key."
)

VERIFIED = "VERIFIED"
"""Every check holds, and a signed checkpoint says that the entries are those of the
service.
"""
CONSISTENT = "CONSISTENT"
"""Every check within the file holds, and nothing was there to compare the file with."""
_BOUNDED = " (bounded)"
"""A load is known as an upper bound, as the service may state it: a bound within the
cap shows that the load is.
"""


_Summary = Summary | PopulationSummary | ControlSummary


def shown(line: object) -> str:
    """One line of output. Line ends and terminal control characters from an export are
    escaped, so that no text of a file can pass for a result.
    """
    return "".join(
        character
        if character.isprintable()
        else character.encode("unicode_escape").decode("ascii")
        for character in str(line)
    )


def _verdict(checkpoints: Sequence[object], *, is_bounded: bool = False) -> str:
    return (VERIFIED if checkpoints else CONSISTENT) + (_BOUNDED if is_bounded else "")


def _verdict_of_dataset(summary: Summary) -> str:
    return _verdict(summary.checkpoints, is_bounded=_is_bounded(summary))


def _is_bounded(summary: Summary) -> bool:
    """Whether the largest load of a dataset, or of the erased dataset that it
    continues, is an upper bound.
    """
    erased = summary.compared
    return not summary.tightest.is_exact or (erased is not None and _is_bounded(erased))


def _verdict_of_population(summary: PopulationSummary) -> str:
    compared = summary.compared.values()
    is_bounded = any(each.n_bounds or _is_bounded(each.ledger) for each in compared)
    return _verdict(summary.checkpoints, is_bounded=is_bounded)


def to_json(summary: Summary) -> dict[str, object]:
    """The summary for programs; amounts are exact decimal text."""
    tightest = summary.tightest
    return {
        "verified": True,
        "verdict": _verdict_of_dataset(summary),
        "dataset": summary.header.dataset,
        "accountant": summary.header.accountant,
        "adjacency": summary.header.adjacency,
        "entries": summary.last.sequence,
        "kinds": summary.kinds,
        "cap": summary.header.text(summary.cap),
        "highest_cap": summary.header.text(summary.highest_cap),
        "attested": summary.attested,
        "continues": None if summary.continued is None else summary.continued.dataset,
        "opening_load": summary.header.text(summary.opening_load),
        "compared": None if summary.compared is None else to_json(summary.compared),
        "charged": summary.header.text(tightest.charged),
        "reserved": summary.header.text(tightest.reserved),
        "remaining": summary.header.text(max(summary.cap - tightest.load, 0)),
        "exact": tightest.is_exact,
        "tightest_cell": tightest.cell,
        **_end(summary),
    }


def to_text(summary: Summary) -> str:
    """The summary for people."""
    facts = to_json(summary)
    cell = (
        ", ".join(f"{name}={index}" for name, index in summary.tightest.cell.items())
        or "the whole dataset"
    )
    rows = [
        ("dataset", summary.header.dataset),
        (
            "account",
            f"{_account(summary.header)}, adjacency {summary.header.adjacency}",
        ),
        ("entries", _entries(summary)),
        ("cap", _cap(summary)),
        *_opening_load(summary),
        ("charged", facts["charged"]),
        ("reserved", facts["reserved"]),
        ("remaining", facts["remaining"]),
        ("tightest cell", cell),
        ("last hash", summary.last.hash),
    ]
    checks = "Chain, sequence, times, every balance, the cap at every step and every price were recomputed and hold."
    return _lines(
        _verdict_of_dataset(summary),
        *_table(rows),
        checks,
        *_notes(summary),
        _tail(summary),
    )


def population_to_json(summary: PopulationSummary) -> dict[str, object]:
    """The summary of a population for programs; ``unchecked`` lists the members whose
    exports were not given.
    """
    adjacency, unit_column = summary.unit or (None, None)
    text = summary.header.text
    return {
        "verified": True,
        "verdict": _verdict_of_population(summary),
        "population": summary.header.population,
        "accountant": summary.header.accountant,
        "adjacency": adjacency,
        "unit_column": unit_column,
        "entries": summary.last.sequence,
        "kinds": summary.kinds,
        "cap": text(summary.cap),
        "highest_cap": text(summary.highest_cap),
        "together": text(summary.together),
        "remaining": text(max(summary.cap - summary.together, 0)),
        "printable": text(summary.printable),
        "members": [
            {
                "dataset": dataset,
                "load": text(member.load),
                "compared": _compared(summary.compared.get(dataset)),
            }
            for dataset, member in summary.members.items()
        ],
        "unchecked": _unchecked(summary),
        **_end(summary),
    }


def population_to_text(summary: PopulationSummary) -> str:
    """The summary of a population for people."""
    facts = population_to_json(summary)
    rows = [
        ("population", summary.header.population),
        ("account", _account(summary.header)),
        ("unit", _unit(summary.unit)),
        ("entries", _entries(summary)),
        *(
            ("member", f"{dataset}: {_standing(summary, dataset)}")
            for dataset in summary.members
        ),
        *(
            (name.replace("_", " "), facts[name])
            for name in ("together", "cap", "highest_cap", "remaining", "printable")
        ),
        ("last hash", summary.last.hash),
    ]
    checks = "Chain, sequence, times, joins, the sum over members and the cap at every step were recomputed and hold."
    return _lines(
        _verdict_of_population(summary),
        *_table(rows),
        checks,
        *_population_notes(summary),
    )


def acts_to_json(summary: ControlSummary) -> dict[str, object]:
    """The summary of a control chain for programs."""
    return {
        "verified": True,
        "verdict": _verdict(summary.checkpoints),
        "log": CONTROL,
        "entries": summary.last.sequence,
        "kinds": summary.kinds,
        **_end(summary),
    }


def acts_to_text(summary: ControlSummary) -> str:
    """The summary of a control chain for people."""
    rows = [
        ("log", "administrative acts"),
        ("entries", _entries(summary)),
        ("last hash", summary.last.hash),
    ]
    checks = "Chain, sequence, times and the form of every act were checked and hold."
    return _lines(_verdict(summary.checkpoints), *_table(rows), checks, _tail(summary))


def _entries(summary: _Summary) -> str:
    """How many entries there are, and how many of each kind."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary.kinds.items())
    return f"{summary.last.sequence} ({kinds})"


def _end(summary: _Summary) -> dict[str, object]:
    """What programs read of the end of a chain, and of its checkpoints."""
    return {
        "last_hash": summary.last.hash,
        "checkpoints": [
            {"size": item.size, "at": item.at} for item in summary.checkpoints
        ],
        "note": _tail(summary),
    }


def _lines(*lines: str) -> str:
    return "\n".join(map(shown, lines))


def _table(rows: Sequence[tuple[str, object]]) -> list[str]:
    return [f"  {name:<14}{value}" for name, value in rows]


def _notes(summary: Summary) -> list[str]:
    """What the checks of a dataset's entries cannot show, except for its end."""
    notes = []
    if not summary.tightest.is_exact:
        notes.append(
            "BOUNDED: the scopes overlap in too many ways to compute the largest load of a joint cell. What is charged "
            "is an upper bound, and what remains a lower bound. That no admission passed the cap is shown."
        )
    if summary.continued is not None and summary.compared is None:
        notes.append(
            f"NOT CHECKED: that the opening load is what {summary.continued.dataset} had spent. Give the export of "
            "that erased dataset with --erased."
        )
    if summary.attested:
        said = ", ".join(f"{count} by {key}" for key, count in summary.attested.items())
        notes.append(
            f"Charges for external mechanisms rest on the attester's statement, which cannot be checked: {said}."
        )
    if summary.compared is not None:
        notes += [
            f"{summary.compared.header.dataset}: {note}"
            for note in _notes(summary.compared)
        ]
    return notes


def _opening_load(summary: Summary) -> list[tuple[str, object]]:
    """What the account of an erased dataset had spent, which counts as charged here."""
    if summary.continued is None:
        return []
    how = (
        ""
        if summary.compared is None
        else f", compared with its {summary.compared.last.sequence} entries"
    )
    return [
        (
            "opening load",
            f"{summary.header.text(summary.opening_load)} of {summary.continued.dataset}{how}",
        )
    ]


def _population_notes(summary: PopulationSummary) -> list[str]:
    """What the checks of a population's export cannot show."""
    notes = []
    if summary.compared:
        notes.append(
            f"Every entry about {', '.join(summary.compared)} agrees with that dataset's export, which was verified."
        )
    if unchecked := _unchecked(summary):
        notes.append(
            f"NOT CHECKED: the loads of {', '.join(unchecked)}. To check that they are right and complete, give the "
            "export of each dataset with --member."
        )
    for dataset, comparison in summary.compared.items():
        # The population does not count entries that are missing at the member's end, so
        # only a checkpoint adds a fact.
        tail = [_tail(comparison.ledger)] if comparison.ledger.checkpoints else []
        notes += [
            f"{dataset}: {note}"
            for note in (*_differences(comparison), *_notes(comparison.ledger), *tail)
        ]
    return [*notes, _tail(summary)]


def _differences(compared: Compared) -> list[str]:
    """Notes where a population's entries differ from the member's largest load."""
    notes = []
    if compared.n_bounds:
        notes.append(
            f"{compared.n_bounds} loads are upper bounds, not below the largest load of its joint cells; this is "
            "allowed where jobs restrict several partitions."
        )
    if compared.n_later:
        notes.append(
            f"{compared.n_later} entries are newer than the population's export: a newer export of the population must "
            "contain their loads."
        )
    if compared.n_overdue:
        notes.append(
            f"{compared.n_overdue} of these are older than the population's checkpoint, but have no load in it. "
            "If export and checkpoint were not taken at the same moment, the loads were left out. Take both again."
        )
    return notes


def _compared(compared: Compared | None) -> dict[str, object] | None:
    if compared is None:
        return None
    return {
        "bounds": compared.n_bounds,
        "later_entries": compared.n_later,
        "overdue_entries": compared.n_overdue,
        "ledger": to_json(compared.ledger),
    }


def _unchecked(summary: PopulationSummary) -> list[str]:
    return [dataset for dataset in summary.members if dataset not in summary.compared]


def _standing(summary: PopulationSummary, dataset: str) -> str:
    load = summary.header.text(summary.members[dataset].load)
    compared = summary.compared.get(dataset)
    return (
        f"{load}, not compared"
        if compared is None
        else f"{load}, compared with its {compared.ledger.last.sequence} entries"
    )


def _unit(unit: tuple[str, str | None] | None) -> str:
    if unit is None:
        return "none: the first member sets it"
    adjacency, column = unit
    who = (
        "one row of each member"
        if column is None
        else f"all rows with one value of {column}"
    )
    return f"{who}, adjacency {adjacency}"


def _cap(summary: Summary) -> str:
    """The cap; on accounts with a δ the guarantee is that of the highest cap, which is
    named where it differs.
    """
    cap, highest = (
        summary.header.text(summary.cap),
        summary.header.text(summary.highest_cap),
    )
    if not summary.cap:
        return f"closed, because entries were lost in a restore (the guarantee is that of the highest cap, {highest})"
    if summary.header.accountant == "pure" or cap == highest:
        return cap
    return f"{cap} (the guarantee is that of the highest cap, {highest})"


def _tail(summary: _Summary) -> str:
    """Whether a checkpoint shows that no entry is missing at the end."""
    if not summary.checkpoints:
        return NO_CHECKPOINT
    newest, total = summary.checkpoints[-1], summary.last.sequence
    if newest.size == total:
        return f"A checkpoint of {newest.at} covers all {total} entries: until then nothing is missing at the end."
    return (
        f"A checkpoint of {newest.at} covers the first {newest.size} of {total} entries: "
        "what may be missing after the last one can only be found with a later checkpoint."
    )


def _account(header: Header | PopulationHeader) -> str:
    at = "" if header.delta is None else f" at δ = {header.delta}"
    return f"{header.accountant}, counted in {SYMBOLS[header.accountant]}{at}"
