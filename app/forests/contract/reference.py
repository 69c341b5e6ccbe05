"""Defines the public interface of an algorithm without privacy, which runs on public datasets only."""

from app.forests.contract.about import About
from app.forests.contract.algorithm import Parameters
from app.forests.contract.parameters import Parameter


class Reference:
    """A learner that private algorithms are compared with. It reads exact rows, so no accountant can price it.

    Growth (``app.forests.grow_references``) takes :class:`app.forests.data.rows.PublicRows`, never private rows.

    Attributes:
        slug: name of the algorithm in requests and artifacts; no private algorithm has it.
        title: a name for people.
        source: the paper or the library that defines the algorithm.
        about: the definition, and where this version differs from it.
        read_outs: read-outs of its models, the default first.
        parameters: every parameter that a request may set, each with a default.
        library: a module that growth needs and a plain installation does not have; ``None``: no such module.
    """

    slug: str
    title: str
    source: str
    about: About
    read_outs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    library: str | None = None

    def n_trees(self, parameters: Parameters) -> int:
        """Number of trees to grow, the unit of progress."""
        return int(parameters["n_estimators"])
