"""Extends a scene by a population whose only member is the scene's dataset."""

from collections.abc import Iterator
from dataclasses import dataclass

from app.access.idempotency import Answer, IdempotentRequest
from app.jobs import queue
from app.services.datasets.membership import join_population
from app.services.jobs import show_jobs
from app.services.ledger import history
from app.services.ledger.balances import change_cap
from app.services.populations import show_population
from app.wire.ledger import CapIn
from grovekeeper_verifier.member_comparison import MemberLedger
from grovekeeper_verifier.population_replay import PopulationSummary, verify
from tests.support.checked_exports import judge_population
from tests.support.crash_scene import OWNER, Scene

POPULATION = "patients"


@dataclass(frozen=True)
class MemberScene:
    """A scene whose dataset is in a population with the same budget."""

    scene: Scene

    @property
    def population_id(self) -> str:
        """The account of the population."""
        return show_population(self.scene.installation, OWNER, POPULATION).id

    @classmethod
    def joined(cls, scene: Scene) -> "MemberScene":
        """Joins the scene's dataset to a population, which is created."""
        join_population(
            scene.installation, OWNER, scene.dataset_id, population=POPULATION
        )
        return cls(scene)

    def lower_cap(self, epsilon: str, *, key: str) -> Answer:
        """Lowers the cap of the population."""
        body = CapIn.model_validate({"cap": epsilon, "reason": "a test"})
        request = IdempotentRequest(
            OWNER.key_id, "POST", key, key.encode().ljust(32, b".")
        )
        return change_cap(
            self.scene.installation, OWNER, self.population_id, body, request=request
        )

    def cancel_newest_job(self) -> None:
        """Cancels the job that was submitted last."""
        with self.scene.installation.database.read() as session:
            (newest,) = queue.page(session, dataset_ids=None, before=None, limit=1)
        show_jobs.cancel_job(self.scene.installation, OWNER, newest)

    def export(self) -> Iterator[bytes]:
        """The lines of the population's export."""
        return history.export_json_lines(
            self.scene.installation, OWNER, self.population_id
        )

    def verified(self) -> PopulationSummary:
        """Verifies the population beside the export of its member, which must have no
        later entries.
        """
        self.scene.verified()
        lines, member = list(self.export()), list(self.scene.export())
        summary = verify(lines, [MemberLedger(member, (), file="member")])
        assert judge_population(lines, [member]).standing == (
            summary.together,
            summary.cap,
            summary.highest_cap,
            summary.printable,
        )
        assert [comparison.n_later for comparison in summary.compared.values()] == [0]
        return summary
