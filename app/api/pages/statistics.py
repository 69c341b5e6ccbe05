"""Serves the pages of statistics: those of a dataset, and the released numbers."""

from fastapi import APIRouter, Response

from app.access.grants import SEE_LEDGER
from app.api.pages import words
from app.api.pages.rendering import Visitor, as_file
from app.api.pages.statistics_view import shown_table, summary_row
from app.api.requests import BodyRoute, Page
from app.services.authorization import has_role
from app.services.datasets import show
from app.services.releases import statistics

statistics_pages = APIRouter(prefix="/ui", route_class=BodyRoute)


@statistics_pages.get("/datasets/{dataset}/statistics")
def list_statistics(visit: Visitor, dataset: str, page: Page) -> Response:
    """Show the statistics of a dataset, newest first."""
    listed = statistics.list_statistics(*visit.by, dataset, page)
    return visit.page(
        "statistics",
        dataset=show.show_dataset(*visit.by, dataset),
        rows=[summary_row(released) for released in listed.statistics],
        following=listed.next,
    )


@statistics_pages.get("/statistics/{statistics_id}")
def show_statistics(visit: Visitor, statistics_id: str) -> Response:
    """Show released statistics with their intervals."""
    released = statistics.show_statistics(*visit.by, statistics_id)
    dataset = show.show_dataset(*visit.by, released.dataset)
    return visit.page(
        "released_statistics",
        released=released,
        summary=summary_row(released),
        tables=[shown_table(table) for table in released.tables],
        unit=words.unit_of(dataset.privacy_unit["column"]),
        may_see_ledger=has_role(*visit.by, dataset.id, SEE_LEDGER),
    )


@statistics_pages.get("/statistics/{statistics_id}/file")
def download(visit: Visitor, statistics_id: str) -> Response:
    """Download released statistics as CSV."""
    text = statistics.statistics_as_csv(*visit.by, statistics_id)
    return as_file(Response(text, media_type="text/csv"), f"{statistics_id}.csv")
