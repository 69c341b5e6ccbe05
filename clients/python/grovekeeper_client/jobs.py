"""Represents jobs: state, price, cancellation, and the output once a job has ended."""

import sys
from collections.abc import Callable
from typing import Generic, TypeVar

from grovekeeper_client import progress as progress_display
from grovekeeper_client.amounts import Price
from grovekeeper_client.client import Client
from grovekeeper_client.errors import FINISHED, JobFailed, JobUnfinished
from grovekeeper_common.json_types import JsonObject

T = TypeVar("T")


class Job(Generic[T]):
    """A job that the service runs. Its price is reserved until it begins and then
    charged, for good.

    Args:
        client: calls the service.
        job_id: id of the job.
        output: makes the output from the answer for a job that succeeded.
    """

    def __init__(
        self, client: Client, job_id: str, output: Callable[[JsonObject], T]
    ) -> None:
        self.id = job_id
        self._client = client
        self._output = output

    def __repr__(self) -> str:
        return f"Job({self.id!r})"

    def show(self) -> JsonObject:
        """The job as the service shows it now."""
        return self._client.job(self.id)

    @property
    def state(self) -> str:
        """``waiting`` (for an approval), ``queued``, ``running``, ``succeeded``,
        ``failed`` or ``cancelled``, now.
        """
        return str(self.show()["state"])

    @property
    def price(self) -> Price | None:
        """What the job costs its dataset; a second account pays
        ``show()["unlabelled"]["price"]``.
        """
        price = self.show()["price"]
        return None if price is None else Price.from_json(price)

    def cancel(self) -> bool:
        """Cancels the job and returns whether its price stays charged: a running job
        keeps its charge.
        """
        return bool(self._client.cancel_job(self.id)["charged"])

    def wait(self, *, timeout: float | None = None, progress: bool = True) -> T:
        """Waits until the job has ended and returns its output: a model, or an
        evaluation.

        An interrupt (Ctrl-C), a timeout, a needed approval or a frozen dataset ends the
        waiting and not the job.

        Args:
            timeout: seconds to wait at most; ``None``: no limit.
            progress: show a bar, in a terminal or in a notebook.

        Raises:
            JobFailed: the job ended without an output.
            JobUnfinished: the job waits for an approval, no worker may start it, or the
                timeout has passed.
        """
        try:
            with progress_display.shown(hidden=not progress) as show:
                job = self._client.wait_for_job(
                    self.id, timeout=timeout, on_change=show
                )
        except KeyboardInterrupt:
            sys.stderr.write(
                f"the job goes on; wait for it again with Grovekeeper().job({self.id!r}).wait()\n"
            )
            raise
        if job["state"] not in FINISHED:
            raise JobUnfinished(job)
        if job["state"] != "succeeded":
            raise JobFailed(job)
        return self._output(job)

    @property
    def is_finished(self) -> bool:
        """Whether the job has ended, with or without an output."""
        return self.state in FINISHED
