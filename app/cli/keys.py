"""Implements ``grovekeeper keys``: creates, lists, rotates and revokes access keys."""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from app.cli.command import Group, KeyArgument, Remote, check_new
from app.cli.installation import HomeOptions

app = Group("Make, list, rotate and revoke keys.")

Expires = Annotated[str | None, typer.Option(help="When the key ends, as 2027-01-31T12:00:00Z.")]

Save = Annotated[Path | None, typer.Option(help="A file for the secret, which is then not shown.")]


@app.command("create")
def create(
    call: Remote,
    name: Annotated[str, typer.Argument(help="Name of the person or program.")],
    role: Annotated[
        list[str] | None, typer.Option(help="admin, owner or auditor, everywhere; may be repeated.")
    ] = None,
    expires_at: Expires = None,
    save: Save = None,
) -> None:
    """Make a key. Its secret is shown once, or saved to a file."""
    check_new(save)
    with call.client() as client:
        made = client.create_key(name, role or [], expires_at=expires_at)
    _show_secret(call, made, save)
    if not role:
        call.output.hint(f"grovekeeper datasets grant DATASET {made['id']} analyst")


@app.command("list")
def list_keys(call: Remote) -> None:
    """List all keys and subjects, without secrets."""
    keys = call.ask_all("keys", lambda client: client.keys())
    times = ("created_at", "last_used_at", "rotated_at", "expires_at", "revoked_at")
    rows = [[key["id"], key["name"], ", ".join(key["roles"]), *(key[time] for time in times)] for key in keys]
    call.output.table(
        ["id", "name", "roles", "created", "last used", "rotated", "expires", "revoked"], rows, empty="no keys"
    )


@app.command("rotate")
def rotate(call: Remote, key_id: KeyArgument, expires_at: Expires = None, save: Save = None) -> None:
    """Replace a key's secret. The earlier secret is refused at once; the key's id, grants and jobs stay."""
    check_new(save)
    with call.client() as client:
        rotated = client.rotate_key(key_id, expires_at=expires_at)
    _show_secret(call, rotated, save)


@app.command("revoke")
def revoke(call: Remote, key_id: KeyArgument) -> None:
    """Revoke a key at once."""
    call.ask(lambda client: client.revoke_key(key_id), as_json={"id": key_id, "revoked": True})
    call.output.say(f"{key_id} opens nothing any more")


def _show_secret(call: Remote, made: dict[str, Any], file: Path | None) -> None:
    """Prints a secret, or writes it to a new file that no other account can read."""
    if file is not None:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(f"{made['key']}\n")
    call.output.answer(made if file is None else made | {"key": None, "file": str(file)})
    if file is None:
        call.output.say(made["key"])
        call.output.say("This is shown once. Save it in a file that its owner alone can read (mode 0600).")
    else:
        call.output.say(f"saved the key {made['id']} to {file}; give the file to its owner, and nobody else")


@app.command("create-admin")
def create_admin(
    call: HomeOptions, name: Annotated[str, typer.Option(help="Name of the person or program.")] = "admin"
) -> None:
    """Make an admin key on the installation itself, for when all admin keys are lost."""
    from app.services.keys import create_admin

    with call.database() as database:
        made = create_admin(database, name)
    call.output.answer({"id": made.id, "key": made.text})
    call.output.say(made.text)
    call.output.say("This is shown once: keep it safe.")
