"""Serves the pages of administration: what needs attention, the access keys,
revocations, and administrative acts.

The pages of acts show who did what and when, one act as it was hashed, and their
verification.
"""

import json
import shutil
from collections.abc import Mapping
from importlib.metadata import version
from typing import Annotated, Literal, get_args

from fastapi import Query, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel

from app.access.grants import Role
from app.api.capacity import Work
from app.api.pages.dataset_view import shown_dataset
from app.api.pages.forms import Form, acts, checked, identity, typed, utc
from app.api.pages.rendering import Visit, Visitor, as_file
from app.api.pages.views import neighbours
from app.api.pages.words import act_in_words
from app.api.requests import KeptHeads, Page, Router, limited
from app.api.streams import exported
from app.core import limits, stamps
from app.core.settings import GlobalRole
from app.ledger import control
from app.ledger.tables import EntryKind
from app.services import dataset_rules, keys, observed
from app.services.ledger import audit, evidence
from app.services.pagination import PageRequest
from app.wire.acts import ActKind
from app.wire.base import Reference
from app.wire.keys import KeyIn, RotationIn
from grovekeeper_forests import limits as forest_limits

admin_pages = Router(prefix="/ui/admin")

_MEANINGS: Mapping[GlobalRole, str] = {
    "owner": "declares datasets",
    "auditor": "reads every ledger",
    "admin": "may do everything",
}
"""Global roles that a form offers, and what each is for. The other roles have an effect
only where a dataset's owner grants them.
"""


@admin_pages.get("")
def show_administration(visit: Visitor, heads: KeptHeads) -> Response:
    """Show the queue, approvals that wait, frozen datasets, caps that are nearly spent,
    heads and the signer.
    """
    visit.caller.require(Role.ADMIN)
    seen = observed.observe(visit.installation, heads)
    free_bytes = shutil.disk_usage(visit.installation.home).free
    return visit.page(
        "admin",
        version=version("grovekeeper"),
        observed=seen,
        takes_uploads=free_bytes >= limits.MIN_FREE_UPLOAD_BYTES,
        near_cap=[
            (f"{int(100 * share)} %", n_accounts)
            for share, n_accounts in seen.near_cap.items()
        ],
        frozen=dataset_rules.list_frozen(*visit.by),
        approvals=dataset_rules.list_approvals(*visit.by, PageRequest()),
        signer=evidence.show_signer(heads.signer),
    )


@admin_pages.get("/keys")
def list_keys(
    visit: Visitor,
    page: Page,
    name: Annotated[str, Query(max_length=forest_limits.MAX_NAME_CHARS)] = "",
) -> Response:
    """Show keys without secrets, all or those with a text in their name or id; with
    forms that change keys.
    """
    name = name.strip()
    listed = keys.list_keys(*visit.by, page, part=name or None)
    is_issue = visit.refused_form == "keys"
    return visit.page(
        "keys",
        keys=listed.keys,
        now=stamps.to_text(stamps.now()),
        name=name,
        following=listed.next,
        roles=[
            (role, meaning, f"role.{role}" in visit.sent)
            for role, meaning in _MEANINGS.items()
        ],
        is_issue=is_issue,
        expires_at=visit.sent.get("expires_at", "") if is_issue else "",
    )


@acts(admin_pages, "/keys", lambda refused: list_keys(refused, PageRequest()))
def create_key(visit: Visit, form: Form) -> Response:
    """Make a key, and show its secret this once."""
    body = {
        "name": typed(form, "name"),
        "roles": [role for role in _MEANINGS if form.get(f"role.{role}") == "yes"],
        "expires_at": utc(form.get("expires_at", "")),
    }
    made = keys.create_key(
        *visit.by,
        checked(KeyIn, body),
        request=identity(visit, form, shows_secret=True),
    )
    return visit.page("key_created", key=made)


@acts(
    admin_pages,
    "/keys/{key_id}/rotate",
    lambda refused, **_: list_keys(refused, PageRequest()),
)
def rotate_key(visit: Visit, form: Form, key_id: str) -> Response:
    """Replace the secret of a key, and show the next secret this once."""
    body = checked(RotationIn, {"expires_at": utc(form.get("expires_at", ""))})
    rotated = keys.rotate_key(
        *visit.by, key_id, body, request=identity(visit, form, shows_secret=True)
    )
    return visit.page("key_created", key=rotated)


revocation_pages = Router(prefix="/ui")


@revocation_pages.get("/datasets/{dataset}/grants/{key_id}/revoke")
def confirm_revocation_of_role(visit: Visitor, dataset: str, key_id: str) -> Response:
    """Ask the owner whether a key shall lose its role, and say what it can do no more."""
    grant, is_last_owner = keys.show_grant(*visit.by, dataset, key_id)
    shown = shown_dataset(visit, dataset)
    return visit.page(
        "revoke_role", dataset=shown, grant=grant, is_last_owner=is_last_owner
    )


@acts(
    revocation_pages,
    "/datasets/{dataset}/grants/{key_id}/revoke",
    confirm_revocation_of_role,
)
def revoke_role(visit: Visit, form: Form, dataset: str, key_id: str) -> str:
    """Revoke the role of a key on a dataset. An owner who revokes her own role sees the
    dataset no more.
    """
    keys.remove_grant(*visit.by, dataset, key_id)
    is_own = key_id == visit.caller.key_id and not visit.caller.is_admin
    return "/" if is_own else f"/ui/datasets/{dataset}/access"


@revocation_pages.get("/admin/keys/{key_id}/revoke")
def confirm_revocation_of_key(visit: Visitor, key_id: str) -> Response:
    """Ask an administrator whether a key shall end, and name the datasets that then
    have no owner.
    """
    key, owned = keys.show_revocation(*visit.by, key_id)
    return visit.page("revoke_key", key=key, owned=owned)


@acts(revocation_pages, "/admin/keys/{key_id}/revoke", confirm_revocation_of_key)
def revoke_key(visit: Visit, form: Form, key_id: str) -> str:
    """Revoke a key at once."""
    keys.revoke_key(*visit.by, key_id)
    return "/ui/admin/keys"


act_pages = Router(prefix="/ui/acts")


class ActFields(BaseModel):
    """The fields of the form that searches acts."""

    kind: ActKind | Literal[""] = ""
    by: Reference = ""
    about: Reference = ""
    dataset: Reference = ""


@act_pages.get("")
def list_acts(
    visit: Visitor, heads: KeptHeads, page: Page, fields: Annotated[ActFields, Query()]
) -> Response:
    """Show administrative acts, newest first, and whether the head outside the database
    covers them; of one dataset to its owners, too.
    """
    search = audit.ActSearch(
        kind=EntryKind(fields.kind) if fields.kind else None,
        by=fields.by.strip() or None,
        about=fields.about.strip() or None,
        dataset=fields.dataset or None,
    )
    found = audit.search_acts(*visit.by, search, page)
    return visit.page(
        "acts",
        acts=[(act, act_in_words(act, found.names, found.caps)) for act in found.acts],
        names=found.names,
        following=found.next,
        kinds=get_args(ActKind),
        fields=fields,
        searched=fields.model_dump(),
        is_searched=search != audit.ActSearch(),
        is_published=not heads.n_behind({control.CHAIN: found.size}),
        size=found.size,
    )


@act_pages.get("/verification")
@limited(work=Work.EXPORT)
def show_verification(visit: Visitor, heads: KeptHeads) -> Response:
    """Let the verifier check all acts, and show its answer."""
    return visit.page(
        "acts_verified",
        verification=evidence.verify_acts(*visit.by, signer=heads.signer),
    )


@act_pages.get("/export")
@limited(work=Work.EXPORT)
def export(visit: Visitor) -> Response:
    """Download all acts for the verifier."""
    return exported(visit.request, audit.export_acts(*visit.by), "acts.jsonl")


@act_pages.get("/checkpoint")
def checkpoint(visit: Visitor, heads: KeptHeads) -> Response:
    """Download the signed head of the acts."""
    note = audit.show_checkpoint_of_acts(*visit.by, signer=heads.signer)
    return as_file(PlainTextResponse(note), "acts.checkpoint")


@act_pages.get("/{sequence}")
def show_act(visit: Visitor, sequence: int) -> Response:
    """Show one act in words and as it was hashed."""
    shown = audit.show_act(*visit.by, sequence)
    return visit.page(
        "act",
        act=shown.act,
        words=act_in_words(shown.act, shown.names, shown.caps),
        names=shown.names,
        neighbours=neighbours(shown.act.sequence, shown.size),
        text=json.dumps(shown.act.model_dump(), indent=2, ensure_ascii=False),
    )
