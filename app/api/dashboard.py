"""Loads the routes of the dashboard at the first request for a page, because many services never show a page.

They take a seventh of the processor time of the start, and 8 MB.
"""

from asyncio import Lock
from collections.abc import Sequence

from fastapi import APIRouter, FastAPI

from app.api.capacity import Capacities, Work


class Dashboard:
    """The dashboard of one process.

    Args:
        capacities: the threads that load it.
    """

    def __init__(self, capacities: Capacities) -> None:
        self._capacities = capacities
        self._loading = Lock()
        self._is_loaded = False

    async def load(self, app: FastAPI) -> None:
        """Add the routes of all pages to an application, at the first call."""
        if self._is_loaded:
            return
        async with self._loading:
            if not self._is_loaded:
                for router in await self._capacities.run(Work.READ, _routers):
                    app.include_router(router, include_in_schema=False)
                self._is_loaded = True


def _routers() -> Sequence[APIRouter]:
    from app.api.pages.routers import PAGES  # takes what the first lines of this module say

    return PAGES
