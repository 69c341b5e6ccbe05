"""Lists, finds and exports administrative acts, with the names of what they concern;
shows their signed head.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.orm import Session

from app.access.grants import SEE_LEDGER, Principal, Role, datasets_with, names_of_keys
from app.core.errors import NotFound
from app.datasets import catalog
from app.ledger import control, statements, tables
from app.ledger.checkpoints import Signer
from app.ledger.tables import Entry, EntryKind
from app.registry import models
from app.services.authorization import authorized_dataset
from app.services.installation import Installation
from app.services.ledger.heads import checkpoint_of
from app.services.ledger.history import entries_up_to, json_lines, matching_entries
from app.services.pagination import PageRequest
from app.wire.acts import ActList, ActOut
from grovekeeper_forests.amounts import SYMBOLS
from grovekeeper_forests.privacy import accountants

_READ_AT_ONCE = 100  # acts: rules may list 10,000 keys


def list_acts(
    installation: Installation,
    principal: Principal,
    page: PageRequest,
    *,
    dataset: str | None = None,
) -> ActList:
    """Lists a page of administrative acts, in order: all of them for auditors, and those
    about one dataset for its owners, too.

    A list of one dataset reads at most ``limits.MAX_SEARCHED_ENTRIES`` acts for a page,
    which may be short.
    """
    with installation.database.read() as session:
        is_shown = _shown_to(session, principal, dataset)

        def after(last: int, limit: int) -> list[Entry]:
            return tables.entries(session, control.CHAIN, after=last, limit=limit)

        shown, following = matching_entries(
            after, is_shown, page, batch_size=_READ_AT_ONCE
        )
        return ActList(
            acts=[ActOut.model_validate(entry.to_json()) for entry in shown],
            next=following,
        )


def export_acts(installation: Installation, principal: Principal) -> Iterator[bytes]:
    """Exports the whole control chain as JSON Lines, for the verifier."""
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        header, last = control.export_header(session)
    return json_lines(header, entries_up_to(installation, control.CHAIN, last))


def show_checkpoint_of_acts(
    installation: Installation, principal: Principal, *, signer: Signer
) -> str:
    """Shows the signed head of the control chain, as a note."""
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        head = checkpoint_of(
            session, control.CHAIN, statements.size(session, control.CHAIN)
        )
    return signer.sign(head)


@dataclass(frozen=True)
class ActSearch:
    """Which acts are searched for. ``None`` excludes no act.

    Attributes:
        by: id, or a part of the name, of the key that acted.
        about: id, or a part of the name, of a key, dataset, population, model or job
            that the act concerns.
        dataset: id of the dataset that the act concerns. Its owners may search these
            acts; all others are for auditors.
    """

    kind: EntryKind | None = None
    by: str | None = None
    about: str | None = None
    dataset: str | None = None


CapChange = Mapping[str, str]
"""The caps ``before`` and ``after`` a change, and its ``reason``, as the ledger of the
account has them.
"""


@dataclass(frozen=True)
class ActPage:
    """A page of acts, newest first.

    Attributes:
        names: of keys, datasets, populations and models, by id. A deleted model has no
            name.
        caps: the changes of caps, by the sequence of their acts.
    """

    acts: Sequence[ActOut]
    names: Mapping[str, str]
    caps: Mapping[int, CapChange]
    size: int
    next: str | None


@dataclass(frozen=True)
class ShownAct:
    """One act of ``size``, with the names in it."""

    act: ActOut
    names: Mapping[str, str]
    caps: Mapping[int, CapChange]
    size: int


def search_acts(
    installation: Installation,
    principal: Principal,
    search: ActSearch,
    page: PageRequest,
) -> ActPage:
    """Finds a page of administrative acts, newest first.

    A search for a key or a subject reads at most ``limits.MAX_SEARCHED_ENTRIES`` acts
    for a page, which may be short.
    """
    kinds = None if search.kind is None else [search.kind]
    names: dict[str, str] = {}
    with installation.database.read() as session:
        is_shown = _shown_to(session, principal, search.dataset)

        def before(last: int, limit: int) -> list[Entry]:
            chosen = statements.EntryFilter(kinds=kinds)
            acts = statements.newest_entries(
                session, control.CHAIN, before=last or None, limit=limit, chosen=chosen
            )
            names.update(_names(session, principal, acts, search.dataset))
            return acts

        def is_match(act: Entry) -> bool:
            is_named = _mentions(search.by, [act.actor], names) and _mentions(
                search.about, _texts(act.details), names
            )
            return is_named and is_shown(act)

        batch_size = _READ_AT_ONCE
        if search == ActSearch(kind=search.kind):
            batch_size = min(page.limit, _READ_AT_ONCE)
        matches, following = matching_entries(
            before, is_match, page, batch_size=batch_size
        )
        size = statements.size(session, control.CHAIN)
        caps = _caps(session, matches)
    return ActPage(
        [ActOut.model_validate(act.to_json()) for act in matches],
        names,
        caps,
        size,
        following,
    )


def show_act(
    installation: Installation, principal: Principal, sequence: int
) -> ShownAct:
    """Shows one administrative act.

    Raises:
        NotFound: no such act.
    """
    principal.require(Role.AUDITOR)
    with installation.database.read() as session:
        size = statements.size(session, control.CHAIN)
        if not 1 <= sequence <= size:
            raise NotFound("act")
        [act] = tables.entries(session, control.CHAIN, after=sequence - 1, limit=1)
        return ShownAct(
            ActOut.model_validate(act.to_json()),
            _names(session, principal, [act]),
            _caps(session, [act]),
            size,
        )


def _caps(session: Session, acts: Sequence[Entry]) -> dict[int, CapChange]:
    """The changes of caps among acts, each read in the ledger of its account."""
    caps: dict[int, CapChange] = {}
    chosen = statements.EntryFilter(kinds=[EntryKind.OPEN, EntryKind.CAP])
    for act in acts:
        if act.kind != EntryKind.CAP_CHANGED:
            continue
        details = act.details or {}
        account = tables.account(session, details["account"])
        after, before = statements.newest_entries(
            session, account.id, before=details["sequence"] + 1, limit=2, chosen=chosen
        )
        symbol = SYMBOLS[accountants.by_name(account.accountant).UNIT]
        caps[act.sequence] = {
            "before": f"{before.to_json()['amount']} {symbol}",
            "after": f"{after.to_json()['amount']} {symbol}",
            **(after.details or {}),
        }
    return caps


def _shown_to(
    session: Session, principal: Principal, reference: str | None
) -> Callable[[Entry], bool]:
    """Which acts a caller may list.

    A decision about a job names all its datasets. An owner who may not read one of
    them does not see the decision.

    Raises:
        RoleMissing: the caller is no auditor, and no owner of the dataset if one is
            named.
        NotFound: the caller does not see the dataset.
    """
    if reference is None:
        principal.require(Role.AUDITOR)
        return lambda _: True
    dataset_id = authorized_dataset(session, principal, reference, SEE_LEDGER).id
    readable = datasets_with(session, principal, SEE_LEDGER)

    def is_shown(act: Entry) -> bool:
        details = act.details or {}
        if dataset_id not in set(_texts(details)):
            return False
        return readable is None or set(details.get("datasets", ())).issubset(readable)

    return is_shown


def _mentions(text: str | None, ids: Iterable[str], names: Mapping[str, str]) -> bool:
    """Whether a text is one of several ids, or a part of the name of one; every act
    matches no text.
    """
    if text is None:
        return True
    part = text.casefold()
    return any(text == it or part in names.get(it, "").casefold() for it in ids)


def _texts(value: Any) -> Iterator[str]:
    """The texts in the details of an act, ids of keys, datasets, models and others
    among them.
    """
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _texts(item)
        case dict():
            for item in value.values():
                yield from _texts(item)


def _names(
    session: Session,
    principal: Principal,
    acts: Sequence[Entry],
    dataset_id: str | None = None,
) -> dict[str, str]:
    ids = sorted({text for act in acts for text in (act.actor, *_texts(act.details))})
    return {
        **{row.id: row.name for row in tables.accounts(session, ids)},
        **{
            dataset_id: named.name
            for dataset_id, named in catalog.named(session, ids).items()
        },
        **models.names(session, ids),
        **names_of_keys(session, principal, dataset_id, ids),
    }
