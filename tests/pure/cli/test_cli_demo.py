"""The demo leaves datasets of an earlier demo alone."""

from typing import Any, cast

from app.cli import demo
from grovekeeper_client.cli.output import Output
from grovekeeper_client.client import Client
from grovekeeper_client.errors import ApiProblem


class _Service:
    """Refuses names that are taken."""

    def __init__(self) -> None:
        self.names = {"adult", "adult-2"}

    def declare_dataset(self, declaration: dict[str, Any]) -> dict[str, Any]:
        if declaration["name"] in self.names:
            raise ApiProblem(409, "name-taken", "another dataset has this name", {})
        self.names.add(declaration["name"])
        return {"name": declaration["name"], "account": {"unit": "epsilon", "cap": "3"}}


def test_a_name_that_is_taken_is_left_alone(tmp_path: Any) -> None:
    service = _Service()
    dataset = demo.load_dataset(tmp_path / "adult.csv.gz")
    tour = demo._Tour(Output(as_json=True), cast(Client, service), dataset)
    tour._declare()
    assert (tour.name, service.names) == ("adult-3", {"adult", "adult-2", "adult-3"})
