"""Serves the pages of administration: what needs attention, the access keys, revocations, and administrative acts.

The pages of acts show who did what and when, one act as it was hashed, and their verification.
"""

import json
from typing import Annotated, Literal, get_args

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import PlainTextResponse, StreamingResponse
from pydantic import Field

from app.access.grants import Principal, Role
from app.api.capacity import Work, capacities
from app.api.pages.forms import Form, PageRoute, SearchForm, checked, submitted, utc
from app.api.pages.rendering import rendered, rendered_with
from app.api.pages.words import act_in_words
from app.api.requests import Caller, CurrentInstallation, KeptHeads, Page, limited
from app.core import limits, stamps
from app.core.errors import GrovekeeperError
from app.core.settings import GlobalRole
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services import dataset_rules, keys, observed
from app.services.dataset_rules import list_frozen
from app.services.datasets import show
from app.services.installation import Installation
from app.services.ledger import audit, evidence
from app.services.ledger.audit import ActSearch
from app.services.ledger.evidence import verify_acts
from app.services.pages import PageRequest
from app.wire.keys import KeyIn, RotationIn
from app.wire.ledger import ActKind

admin_pages = APIRouter(prefix="/ui/admin", route_class=PageRoute)

_ROLES: tuple[GlobalRole, ...] = ("owner", "auditor", "admin")
"""Global roles that a form offers. The other roles have an effect only where a dataset's owner grants them."""


@admin_pages.get("")
def show_administration(
    request: Request, installation: CurrentInstallation, caller: Caller, heads: KeptHeads
) -> Response:
    """Show the queue, approvals that wait, frozen datasets, caps that are nearly spent, heads and the signer."""
    caller.require(Role.ADMIN)
    return rendered(
        request,
        "admin",
        observed=observed.observe(installation, heads),
        frozen=list_frozen(installation, caller),
        approvals=dataset_rules.list_approvals(installation, caller, PageRequest()),
        signer=evidence.show_signer(heads.signer),
    )


@admin_pages.get("/keys")
def list_keys(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    page: Page,
    name: Annotated[str, Query(max_length=limits.MAX_NAME_CHARS)] = "",
) -> Response:
    """Show keys without secrets, all or those with a text in their name or id; with forms that change keys."""
    return _keys(request, installation, caller, page, name=name.strip())


@admin_pages.post("/keys")
async def create_key(request: Request, installation: CurrentInstallation, caller: Caller) -> Response:
    """Make a key, and show its secret this once."""

    def act(form: Form) -> Response:
        body = {
            "name": form.get("name", "").strip(),
            "roles": [role for role in _ROLES if form.get(f"role.{role}") == "yes"],
            "expires_at": utc(form.get("expires_at", "")),
        }
        return rendered(request, "key_created", key=keys.create_key(installation, caller, checked(KeyIn, body)))

    return await submitted(request, act, lambda refusal: _keys(request, installation, caller, refusal=refusal))


@admin_pages.post("/keys/{key_id}/rotate")
async def rotate_key(request: Request, installation: CurrentInstallation, caller: Caller, key_id: str) -> Response:
    """Replace the secret of a key, and show the next secret this once."""

    def act(form: Form) -> Response:
        body = checked(RotationIn, {"expires_at": utc(form.get("expires_at", ""))})
        return rendered(request, "key_created", key=keys.rotate_key(installation, caller, key_id, body))

    return await submitted(request, act, lambda refusal: _keys(request, installation, caller, refusal=refusal))


def _keys(
    request: Request,
    installation: Installation,
    caller: Principal,
    page: PageRequest | None = None,
    *,
    name: str = "",
    refusal: GrovekeeperError | None = None,
) -> Response:
    listed = keys.list_keys(installation, caller, page or PageRequest(), part=name or None)
    return rendered_with(
        request,
        "keys",
        refusal,
        keys=listed.keys,
        name=name,
        following=listed.next,
        roles=_ROLES,
        now=stamps.to_text(stamps.now()),
    )


revocation_pages = APIRouter(prefix="/ui", route_class=PageRoute)


@revocation_pages.get("/datasets/{dataset}/grants/{key_id}/revoke")
def confirm_revocation_of_role(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, key_id: str
) -> Response:
    """Ask the owner whether a key shall lose its role, and say what it can do no more."""
    return _of_role(request, installation, caller, dataset, key_id)


@revocation_pages.post("/datasets/{dataset}/grants/{key_id}/revoke")
async def revoke_role(
    request: Request, installation: CurrentInstallation, caller: Caller, dataset: str, key_id: str
) -> Response:
    """Revoke the role of a key on a dataset. An owner who revokes her own role sees the dataset no more."""

    def act(form: Form) -> str:
        keys.remove_grant(installation, caller, dataset, key_id)
        is_own = key_id == caller.key_id and not caller.is_admin
        return "/" if is_own else f"/ui/datasets/{dataset}#access"

    return await submitted(
        request, act, lambda refusal: _of_role(request, installation, caller, dataset, key_id, refusal=refusal)
    )


@revocation_pages.get("/admin/keys/{key_id}/revoke")
def confirm_revocation_of_key(
    request: Request, installation: CurrentInstallation, caller: Caller, key_id: str
) -> Response:
    """Ask an administrator whether a key shall end, and name the datasets that then have no owner."""
    return _of_key(request, installation, caller, key_id)


@revocation_pages.post("/admin/keys/{key_id}/revoke")
async def revoke_key(request: Request, installation: CurrentInstallation, caller: Caller, key_id: str) -> Response:
    """Revoke a key at once."""

    def act(form: Form) -> str:
        keys.revoke_key(installation, caller, key_id)
        return "/ui/admin/keys"

    return await submitted(
        request, act, lambda refusal: _of_key(request, installation, caller, key_id, refusal=refusal)
    )


def _of_role(
    request: Request,
    installation: Installation,
    caller: Principal,
    dataset: str,
    key_id: str,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    grant, is_last_owner = keys.show_grant(installation, caller, dataset, key_id)
    shown = show.show_dataset(installation, caller, dataset)
    return rendered_with(
        request, "revoke_role", refusal, dataset=shown.model_dump(), grant=grant, is_last_owner=is_last_owner
    )


def _of_key(
    request: Request,
    installation: Installation,
    caller: Principal,
    key_id: str,
    *,
    refusal: GrovekeeperError | None = None,
) -> Response:
    key, owned = keys.show_revocation(installation, caller, key_id)
    return rendered_with(request, "revoke_key", refusal, key=key, owned=owned)


act_pages = APIRouter(prefix="/ui/acts", route_class=PageRoute)


class ActFields(SearchForm):
    """The fields of the form that searches acts."""

    kind: ActKind | Literal[""] = ""
    by: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""
    about: Annotated[str, Field(max_length=limits.MAX_REFERENCE_CHARS)] = ""


@act_pages.get("")
def list_acts(
    request: Request,
    installation: CurrentInstallation,
    caller: Caller,
    heads: KeptHeads,
    fields: Annotated[ActFields, Query()],
) -> Response:
    """Show administrative acts, newest first, and whether the head outside the database covers them."""
    search = ActSearch(
        kind=EntryKind(fields.kind) if fields.kind else None,
        by=fields.by.strip() or None,
        about=fields.about.strip() or None,
    )
    found = audit.search_acts(installation, caller, search, fields.page)
    return rendered(
        request,
        "acts",
        acts=[(act, act_in_words(act, found.names)) for act in found.acts],
        names=found.names,
        following=found.next,
        kinds=get_args(ActKind),
        fields=fields,
        is_searched=search != ActSearch(),
        is_published=not heads.n_behind({control.CHAIN: found.size}),
        size=found.size,
    )


@act_pages.get("/verification")
@limited(work=Work.EXPORT)
def show_verification(
    request: Request, installation: CurrentInstallation, caller: Caller, heads: KeptHeads
) -> Response:
    """Let the verifier check all acts, and show its answer."""
    return rendered(request, "acts_verified", verification=verify_acts(installation, caller, signer=heads.signer))


@act_pages.get("/export")
@limited(work=Work.EXPORT)
def export(request: Request, installation: CurrentInstallation, caller: Caller) -> StreamingResponse:
    """Download all acts for the verifier."""
    lines = audit.export_acts(installation, caller)
    return StreamingResponse(
        capacities(request).iterate(Work.EXPORT, lines),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": 'attachment; filename="acts.jsonl"'},
    )


@act_pages.get("/checkpoint")
def checkpoint(installation: CurrentInstallation, caller: Caller, heads: KeptHeads) -> PlainTextResponse:
    """Download the signed head of the acts."""
    return PlainTextResponse(
        audit.show_checkpoint_of_acts(installation, caller, signer=heads.signer),
        headers={"Content-Disposition": 'attachment; filename="acts.checkpoint"'},
    )


@act_pages.get("/{sequence}")
def show_act(request: Request, installation: CurrentInstallation, caller: Caller, sequence: int) -> Response:
    """Show one act in words and as it was hashed."""
    shown = audit.show_act(installation, caller, sequence)
    return rendered(
        request,
        "act",
        act=shown.act,
        words=act_in_words(shown.act, shown.names),
        names=shown.names,
        size=shown.size,
        text=json.dumps(shown.act.model_dump(), indent=2, ensure_ascii=False),
    )
