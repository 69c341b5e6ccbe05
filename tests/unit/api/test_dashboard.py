"""Pages are added to an application once, however many requests are the first."""

import asyncio

from fastapi import FastAPI

from app.api.capacity import Capacities
from app.api.dashboard import Dashboard
from app.api.pages.routers import PAGES


def test_pages_are_loaded_once_for_requests_that_arrive_together() -> None:
    async def routers_of_five_first_requests() -> int:
        app, dashboard = FastAPI(), Dashboard(Capacities())
        n_before = len(app.routes)
        await asyncio.gather(*(dashboard.load(app) for _ in range(5)))
        return len(app.routes) - n_before

    async def routers_of_one_inclusion() -> int:
        app = FastAPI()
        n_before = len(app.routes)
        for router in PAGES:
            app.include_router(router, include_in_schema=False)
        return len(app.routes) - n_before

    added = asyncio.run(routers_of_five_first_requests())
    assert added == asyncio.run(routers_of_one_inclusion()) > 0
