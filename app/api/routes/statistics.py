"""Defines the routes of statistics."""

from typing import Annotated, Literal

from fastapi import Query, Response

from app.api.capacity import Work
from app.api.problems import QUOTED
from app.api.requests import By, Idempotency, Page, Router, limited, raises, sent
from app.core.errors import NoRowsYet
from app.services.predict import PredictionForm
from app.services.releases import statistics, statistics_files
from app.services.releases.requests import quote, submit
from app.wire.jobs import TrainOut
from app.wire.statistics import (
    StatisticsIn,
    StatisticsList,
    StatisticsOut,
    StatisticsQuoteOut,
)

statistics_routes = Router(tags=["statistics"])


@statistics_routes.post("/datasets/{dataset}/statistics/quote")
@raises(*QUOTED)
def quote_statistics(by: By, dataset: str, body: StatisticsIn) -> StatisticsQuoteOut:
    """Quote statistics: tables, their error and their price. Reads no row and costs
    nothing.
    """
    return quote(*by, statistics.StatisticsRequest(dataset=dataset, body=body))


@statistics_routes.post(
    "/datasets/{dataset}/statistics",
    status_code=202,
    response_model=TrainOut,
)
@limited(work=Work.SUBMISSION)
@raises(NoRowsYet)
def release_statistics(
    by: By, dataset: str, body: StatisticsIn, request: Idempotency
) -> Response:
    """Reserve the price and queue a job that releases noisy counts, sums, means,
    variances and quantiles.
    """
    asked = statistics.StatisticsRequest(dataset=dataset, body=body)
    return sent(submit(*by, asked, request=request))


@statistics_routes.get("/datasets/{dataset}/statistics")
def list_statistics(by: By, dataset: str, page: Page) -> StatisticsList:
    """List the statistics of a dataset, newest first. They stay when the rows are
    erased.
    """
    return statistics.list_statistics(*by, dataset, page)


@statistics_routes.get(
    "/statistics/{statistics_id}",
    response_model=StatisticsOut,
    responses={
        200: {"content": {"text/csv": {}, PredictionForm.ARROW: {}}},
    },
)
def show_statistics(
    by: By,
    statistics_id: str,
    form: Annotated[Literal["json", "csv", "arrow"], Query(alias="format")] = "json",
) -> StatisticsOut | Response:
    """Show statistics: the released numbers with their intervals, guarantee and
    receipt. ``format=csv``: a line for each number; ``format=arrow``: the same table as
    an Arrow IPC stream.
    """
    shown = statistics.show_statistics(*by, statistics_id)
    if form == "csv":
        return Response(statistics_files.as_csv(shown.tables), media_type="text/csv")
    if form == "arrow":
        stream = statistics_files.as_arrow(shown.tables)
        return Response(stream, media_type=PredictionForm.ARROW)
    return shown
