"""Implements ``grovekeeper keys``: creates, lists and revokes access keys."""

from typing import Annotated

import typer

from app.cli.arguments import KeyArgument
from app.cli.command import Remote, command
from app.cli.installation import HomeOptions

app = typer.Typer(help="Make, list and revoke keys.", no_args_is_help=True)


_EVERYWHERE = frozenset({"admin", "owner", "auditor"})
"""Roles that take effect without a grant. The other roles need a grant on a dataset."""


@app.command("create")
@command
def create(
    call: Remote,
    name: Annotated[str, typer.Argument(help="Whose key it is.", show_default=False)],
    role: Annotated[
        list[str] | None,
        typer.Option("--role", help="admin, owner or auditor, everywhere; may be repeated.", show_default=False),
    ] = None,
) -> None:
    """Make a key. Its secret is shown once."""
    with call.client() as client:
        made = client.create_key(name, role or [])
    output = call.output
    if output.as_json:
        output.json(made)
        return
    output.say(made["key"])
    output.say("This is shown once: keep it where its owner can reach it, and nobody else.")
    if not _EVERYWHERE.intersection(role or ()):
        output.hint(f"grovekeeper datasets grant DATASET {made['id']} {(role or ['analyst'])[0]}")


@app.command("list")
@command
def list_keys(call: Remote) -> None:
    """List all keys, without their secrets."""
    with call.client() as client:
        keys = list(client.keys())
    if call.as_json:
        call.output.json({"keys": keys})
        return
    rows = [[key["id"], key["name"], ", ".join(key["roles"]), key["created_at"], key["revoked_at"]] for key in keys]
    call.output.table(["id", "name", "roles", "created", "revoked"], rows, empty="no keys")


@app.command("revoke")
@command
def revoke(call: Remote, key_id: KeyArgument) -> None:
    """Revoke a key at once."""
    with call.client() as client:
        client.revoke_key(key_id)
    if call.as_json:
        call.output.json({"id": key_id, "revoked": True})
    call.output.say(f"{key_id} opens nothing any more")


@app.command("create-admin")
@command
def create_admin(
    call: HomeOptions,
    name: Annotated[str, typer.Option(help="Whose key it is.")] = "admin",
) -> None:
    """Make an admin key on the installation itself, for when all admin keys are lost."""
    from app.cli.prepare import opened
    from app.services import keys

    with opened(call.settings()) as database:
        made = keys.create_admin(database, name)
    if call.as_json:
        call.output.json({"id": made.id, "key": made.text})
    call.output.say(made.text)
    call.output.say("This is shown once: keep it safe.")
