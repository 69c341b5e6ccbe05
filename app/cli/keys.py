"""Implements ``grovekeeper keys``: the commands of the client, and ``create-admin``."""

from app.cli.command import Group
from app.cli.installation import HomeOptions
from grovekeeper_client.cli import keys
from grovekeeper_client.cli.command import option
from grovekeeper_client.cli.new_secrets import SaveOption, hand_over, secret_file

_on_the_installation = Group("")

app = Group(keys.app.info.help or "")
app.add_typer(keys.app)
app.add_typer(_on_the_installation)


@_on_the_installation.command("create-admin")
def create_admin(
    call: HomeOptions,
    name: str = option("Name of the person or program.", default="admin"),
    save: SaveOption = None,
) -> None:
    """Make an admin key on the installation itself, for when all admin keys are lost."""
    from app.services.keys import create_admin

    with secret_file(save) as stream:
        with call.database() as database:
            made = create_admin(database, name)
        answer = {"id": made.id, "key": made.text}
        hand_over(
            call.output, answer, "key", stream, again="grovekeeper keys create-admin"
        )
