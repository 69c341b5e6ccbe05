"""Exports accounts, verifies populations beside their members, and opens the folder of
an installation's heads.
"""

from collections.abc import Iterator

import rfc8785
from sqlalchemy.orm import Session

from app.ledger import checkpoints, populations, statements, tables
from app.ledger.checkpoints import HeadFolder
from app.services.installation import Installation
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import PopulationSummary, verify
from tests.support.checked_exports import judge_population

_ALL = 1_000_000


def head_folder(installation: Installation) -> HeadFolder:
    """The folder of heads, as a process opens it that has the signing keys of the
    database.
    """
    with installation.database.read() as session:
        return HeadFolder(installation.heads, checkpoints.pinned_keys(session))


def export(session: Session, account_id: str) -> Iterator[bytes]:
    """The lines of an account's export."""
    header, _ = statements.export_header(session, account_id)
    yield rfc8785.dumps(header) + b"\n"
    for entry in tables.entries(session, account_id, after=0, limit=_ALL):
        yield rfc8785.dumps(entry.to_json()) + b"\n"


def verified(session: Session, population_id: str) -> PopulationSummary:
    """Verifies a population beside all of its members, and compares the result with the
    service's totals and, where every load is exact, with what the proofs admit.
    """
    population = populations.of_population(session, population_id)
    lines = list(export(session, population_id))
    exports = {name: list(export(session, name)) for name in sorted(population.loads)}
    ledgers = [MemberLedger(each, (), file=name) for name, each in exports.items()]
    summary = verify(lines, ledgers)
    if not any(member.n_bounds for member in summary.compared.values()):
        assert judge_population(lines, exports.values()).standing == (
            summary.together,
            summary.cap,
            summary.highest_cap,
            summary.printable,
        )
    assert {
        name: member.load for name, member in summary.members.items()
    } == population.loads
    assert set(summary.compared) == set(population.loads)
    assert (summary.cap, summary.together) == (population.cap, population.together)
    assert (
        summary.printable
        == statements.printable_of(
            population, statements.highest_cap(session, population_id)
        ).amount.steps
    )
    return summary
