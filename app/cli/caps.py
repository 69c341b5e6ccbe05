"""``cap`` of a dataset or of a population: another lifetime cap, with its reason."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.command import Remote, one_attempt
from app.cli.output import amount

if TYPE_CHECKING:
    from app.client.client import Client


@dataclass(frozen=True)
class NewCap:
    """What a cap is changed to, and why."""

    epsilon: Annotated[str, typer.Argument(help="The new lifetime ε, at the account's own δ.", show_default=False)]
    reason: Annotated[str, typer.Option(help="Why; it stays in the entries for good.", show_default=False)]
    idempotency_key: Annotated[str | None, typer.Option(help="Continue an earlier attempt.")] = None


def change(
    call: Remote, wanted: NewCap, change_of: "Callable[[Client], Callable[..., Any]]", *, account: str, shown_by: str
) -> None:
    """Changes the cap of an account, and says what is left under it.

    Args:
        call: how the service is reached.
        wanted: the cap.
        change_of: the call of a client that changes caps of this kind of account.
        account: whose, as it was typed.
        shown_by: the command that shows it.
    """
    output = call.output
    with call.client() as client, one_attempt(output, wanted.idempotency_key) as key:
        found = change_of(client)(account, wanted.epsilon, reason=wanted.reason, idempotency_key=key)
    if output.as_json:
        output.json(found)
        return
    name, left = found.get("dataset_name") or found["name"], amount(found, "remaining")
    output.say(f"the cap of {name} is {amount(found, 'cap')} from here on; {left} are left")
    output.hint(f"grovekeeper {shown_by} {account}")
