"""Serves the pages of populations: the list with its form, and the erasure of a person
from the members of one.
"""

from fastapi import Response

from app.api.pages.forms import Form, acts, cap_field, checked, identity, person, typed
from app.api.pages.rendering import Visit, Visitor
from app.api.pages.views import may_declare
from app.api.requests import Page, Router
from app.services import populations
from app.services.datasets import unit_erasure
from app.services.pagination import PageRequest
from app.wire.populations import PersonErasureIn, PopulationIn

population_pages = Router(prefix="/ui/populations")


@population_pages.get("")
def list_populations(visit: Visitor, page: Page) -> Response:
    """Show the populations that the key opened, with their members; all populations for
    admins and auditors.
    """
    listed = populations.list_populations(*visit.by, page)
    shown = [population.model_dump() for population in listed.populations]
    return visit.page(
        "populations",
        populations=shown,
        following=listed.next,
        may_open=may_declare(visit.caller),
    )


@acts(population_pages, "", lambda refused: list_populations(refused, PageRequest()))
def open_population(visit: Visit, form: Form) -> str:
    """Open a population with a budget."""
    accountant = typed(form, "accountant")
    budget = {
        "accountant": accountant,
        cap_field(form, accountant): typed(form, "epsilon"),
        "delta": typed(form, "delta") or None,
    }
    body = checked(PopulationIn, {"name": typed(form, "name"), "budget": budget})
    populations.open_population(*visit.by, body, request=identity(visit, form))
    return "/ui/populations"


@population_pages.get("/{population}/erase-unit")
def ask_whom_to_erase(visit: Visitor, population: str) -> Response:
    """Ask an owner of members for the person and the datasets."""
    shown = populations.show_population(*visit.by, population)
    members = unit_erasure.erasable_members(*visit.by, shown.id)
    return visit.page("erase_person", population=shown, members=members)


@acts(population_pages, "/{population}/erase-unit", ask_whom_to_erase)
def erase_person(visit: Visit, form: Form, population: str) -> Response:
    """Erase a person from the chosen datasets, and show the receipt."""
    prefix = "dataset."
    datasets = [name.removeprefix(prefix) for name in form if name.startswith(prefix)]
    body = checked(PersonErasureIn, {**person(form), "datasets": datasets})
    receipt = unit_erasure.erase_person(*visit.by, population, body)
    n_similar = sum(member.similar_units or 0 for member in receipt.members)
    is_found = any(member.erased != 0 for member in receipt.members)
    return visit.page(
        "erased_person", receipt=receipt, is_found=is_found, n_similar=n_similar
    )
