"""Implements ``grovekeeper keys``: creates, lists, rotates and revokes access keys."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from grovekeeper_client.cli.command import (
    Client,
    Group,
    KeyArgument,
    Remote,
    argument,
    on_key,
    option,
)
from grovekeeper_client.cli.new_secrets import SaveOption, hand_over, secret_file
from grovekeeper_client.cli.output import Output, last_use
from grovekeeper_client.settings import ADMIN_KEY_FILE, home_of
from grovekeeper_common import durable_files
from grovekeeper_common.json_types import JsonObject

app = Group("Make, list, rotate and revoke keys.")

Expires = Annotated[
    str | None, typer.Option(help="When the key ends, as 2027-01-31T12:00:00Z.")
]


@app.command("create")
def create(
    call: Remote,
    name: Annotated[str, argument("Name of the person or program.")],
    role: list[str] | None = option(
        "admin, owner or auditor, everywhere; may be repeated. Analysts and predictors "
        "need none: datasets grant makes them one of a dataset."
    ),
    expires_at: Expires = None,
    save: SaveOption = None,
) -> None:
    """Make a key. Its secret is shown once, or saved to a file."""
    with secret_file(save) as stream:
        with call.client() as client:
            made = client.create_key(name, role or [], expires_at=expires_at)
        hand_over(
            call.output,
            made,
            "key",
            stream,
            again=f"grovekeeper keys rotate {made['id']}",
        )
    if not role:
        call.output.hint(f"grovekeeper datasets grant DATASET {made['id']} analyst")


@app.command("list")
def list_keys(call: Remote) -> None:
    """List all keys and subjects, without secrets."""
    call.show_all(
        "keys",
        lambda client: client.keys(),
        {
            "id": "id",
            "name": "name",
            "roles": "roles",
            "created": "created_at",
            "last used": last_use,
            "rotated": "rotated_at",
            "expires": "expires_at",
            "revoked": "revoked_at",
        },
    )


@app.command("rotate")
def rotate(
    call: Remote, key: KeyArgument, expires_at: Expires = None, save: SaveOption = None
) -> None:
    """Replace a key's secret. The earlier secret is refused at once; the key's id,
    grants and jobs stay.
    """
    with secret_file(save) as stream:
        with call.client() as client:
            rotated = on_key(
                client, key, partial(client.rotate_key, expires_at=expires_at)
            )
        home_file = _renew_home(call.output, rotated)
        again = f"grovekeeper keys rotate {rotated['id']} (if the key was your own, with another admin key)"
        hand_over(call.output, rotated, "key", stream, again=again, kept_in=home_file)


def _renew_home(output: Output, rotated: JsonObject) -> Path | None:
    """Replaces the key in the home if it was rotated: later commands read it. Says what
    it did on stderr.

    Returns:
        The file, if it has the new secret.
    """
    home = home_of(os.environ)
    if home is None:
        return None
    file = home / ADMIN_KEY_FILE
    try:
        earlier = file.read_text(encoding="utf-8-sig").strip()
    except (OSError, UnicodeDecodeError):  # no file, or none that a command could read
        return None
    if earlier.partition(".")[0] != rotated["id"]:
        return None
    try:
        durable_files.write(file.resolve(), f"{rotated['key']}\n".encode("ascii"))
    except OSError as error:
        output.complain(
            f"{file} still has the earlier secret of this key: {error.strerror}; write the new one there"
        )
        return None
    output.complain(
        f"{file} had the earlier secret of this key, and has the new one now"
    )
    return file


@app.command("revoke")
def revoke(call: Remote, key: KeyArgument) -> None:
    """Revoke a key at once."""
    revoked = call.ask(lambda client: on_key(client, key, partial(_revoke, client)))
    call.output.say(f"{revoked['id']} opens nothing any more")


def _revoke(client: Client, key_id: str) -> JsonObject:
    client.revoke_key(key_id)
    return {"id": key_id, "revoked": True}
