"""Implements ``grovekeeper keys``: creates, lists, rotates and revokes access keys."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TextIO

import typer

from app.cli.command import Client, Group, KeyArgument, Remote, WrongUse, check_new, on_key
from app.cli.installation import HomeOptions
from app.cli.output import Output

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
    with _secret_file(save) as stream:
        with call.client() as client:
            made = client.create_key(name, role or [], expires_at=expires_at)
        _show_secret(call.output, made, save, stream)
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
def rotate(call: Remote, key: KeyArgument, expires_at: Expires = None, save: Save = None) -> None:
    """Replace a key's secret. The earlier secret is refused at once; the key's id, grants and jobs stay."""
    with _secret_file(save) as stream:
        with call.client() as client:
            rotated = on_key(client, key, partial(client.rotate_key, expires_at=expires_at))
        _show_secret(call.output, rotated, save, stream)


@app.command("revoke")
def revoke(call: Remote, key: KeyArgument) -> None:
    """Revoke a key at once."""
    revoked = call.ask(lambda client: on_key(client, key, partial(_revoke, client)))
    call.output.say(f"{revoked['id']} opens nothing any more")


def _revoke(client: Client, key_id: str) -> dict[str, Any]:
    client.revoke_key(key_id)
    return {"id": key_id, "revoked": True}


@contextmanager
def _secret_file(file: Path | None) -> Iterator[TextIO | None]:
    """A new file that no other account can read, made before the secret is: a secret that is lost has to be replaced.

    Raises:
        WrongUse: the file exists, or cannot be made.
    """
    check_new(file)
    if file is None:
        yield None
        return
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise WrongUse(f"{file} cannot be made: {error.strerror}") from None
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            yield stream
    except BaseException:
        if not file.stat().st_size:
            file.unlink()
        raise


def _show_secret(output: Output, made: dict[str, Any], file: Path | None, stream: TextIO | None) -> None:
    """Prints a secret, or writes it to its file."""
    if stream is not None:
        stream.write(f"{made['key']}\n")
        stream.flush()
    output.answer(made if stream is None else made | {"key": None, "file": str(file)})
    if stream is None:
        output.say(made["key"])
        output.say("This is shown once. Save it in a file that its owner alone can read (mode 0600).")
    else:
        output.say(f"saved the key {made['id']} to {file}; give the file to its owner, and nobody else")


@app.command("create-admin")
def create_admin(
    call: HomeOptions,
    name: Annotated[str, typer.Option(help="Name of the person or program.")] = "admin",
    save: Save = None,
) -> None:
    """Make an admin key on the installation itself, for when all admin keys are lost."""
    from app.services.keys import create_admin

    with _secret_file(save) as stream:
        with call.database() as database:
            made = create_admin(database, name)
        _show_secret(call.output, {"id": made.id, "key": made.text}, save, stream)
