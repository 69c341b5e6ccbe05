"""Describes a tree of a released forest in words, from its root to its leaves.

All of it is post-processing of the released arrays (lemma L7): it reads no row and costs
no budget.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor
from typing import Final, TypeAlias

import numpy as np

from grovekeeper_forests import catalogue
from grovekeeper_forests.algorithms.bms_rf.read import StackedSums
from grovekeeper_forests.algorithms.nbrt.read import BoostedNumbers, BoostedScores
from grovekeeper_forests.algorithms.nbrt.read import probabilities as of_scores
from grovekeeper_forests.array_types import BoolArray, Float64Array
from grovekeeper_forests.contract.plan import Forest
from grovekeeper_forests.data.encoding import COLUMNS_PER_PAIR, Encoding, n_places
from grovekeeper_forests.data.schema import Feature, Label, Schema, plain_number
from grovekeeper_forests.kernels.prediction import normalised
from grovekeeper_forests.releases.forest.importances import reached_of
from grovekeeper_forests.trees.leaf_read_out import PooledSums, to_probabilities
from grovekeeper_forests.trees.number_read_out import LeafNumbers, Numbers

_Box: TypeAlias = Mapping[int, BoolArray]
"""Which codes of a column can occur, by column; a column that is absent has all."""

MOST_LEVELS: Final = 4
"""Splits on a path that are shown: at most 31 nodes."""
_FIRST_WITH_ALL_DIGITS: Final = 1e5


@dataclass(frozen=True)
class Node:
    """A node of a tree.

    Attributes:
        test: what the split asks of a row, in words; ``None`` at an end.
        yes: place of the next node among the tree's nodes if the answer is yes.
        no: the same if it is no.
        label: the class that an end answers; ``None`` at a split, or where the label is
            a number.
        share: that class's share; ``None`` where a leaf holds a class and no shares.
        number: that an end answers, where the label is a number.
        n_leaves: 1 at a leaf; at an end of what is shown, the leaves below, whose
            counts are pooled, or whose answers are averaged; ``None`` at a split.
    """

    test: str | None = None
    yes: int | None = None
    no: int | None = None
    label: str | None = None
    share: float | None = None
    number: float | None = None
    n_leaves: int | None = None


def n_shown(forest: Forest, schema: Schema) -> int:
    """The number of trees that words can be said of: all; of a stacked forest those of
    the first layer, because later layers read shifted values.
    """
    match _reader(forest, schema):
        case StackedSums(layers=layers):
            return len(layers[0].values)
    return len(forest.arrays["feature"])


def describe(forest: Forest, schema: Schema, number: int) -> list[Node]:
    """The nodes of a tree, the root first, and each node before those below it.

    A leaf states what the forest would answer if it had this tree alone: shares of
    classes, from noisy counts where leaves release counts; or a number. Left out are
    splits that send every row to one side, also those that do so because of the splits
    above them, and nodes below :data:`MOST_LEVELS` splits.

    Privacy:
        None of its own: a function of the released forest and of public facts alone.
        Differential privacy is closed under post-processing (lemma L7,
        docs/proofs/lemmas.md), so no row is read and nothing is charged.

    Args:
        forest: released.
        schema: public; the schema inside the artifact.
        number: of the tree, from 0 and below :func:`n_shown`.
    """
    splits, reached = reached_of(forest)
    tree = _Tree(
        forest=forest,
        number=number,
        encoding=_encoding(forest, schema),
        label=schema.label,
        answers=_answers(forest, schema, number),
        splits=splits[number],
        reached=reached[number],
    )
    tree.add(0, 0, {})
    return tree.nodes


@dataclass
class _Tree:
    """A tree whose nodes are listed.

    Attributes:
        answers: of each leaf, float64 ``(n_leaves, n_classes)``; or ``(n_leaves, 1)``
            where the label is a number.
        splits: whether each node splits, and a row can reach it.
        reached: whether a row can reach each leaf.
    """

    forest: Forest
    number: int
    encoding: Encoding
    label: Label
    answers: Float64Array
    splits: BoolArray
    reached: BoolArray
    nodes: list[Node] = field(default_factory=list)

    def add(self, heap: int, level: int, box: _Box) -> int:
        """Adds a node of the heap with the nodes below it, and returns its place.

        Args:
            level: splits above it that are shown.
            box: the codes that rows at the node can have.
        """
        while heap < len(self.splits):
            yes, no = self._sides(heap, box)
            if yes is not None and no is not None:
                break
            # every row that comes here goes to one side
            heap = 2 * heap + (1 if no is None else 2)
        place = len(self.nodes)
        if heap >= len(self.splits) or level == MOST_LEVELS:
            self.nodes.append(self._end(heap))
        else:
            assert yes is not None
            assert no is not None
            self.nodes.append(Node())  # nodes below it come after it
            next_yes = self.add(2 * heap + 1, level + 1, yes)
            next_no = self.add(2 * heap + 2, level + 1, no)
            column, is_left = self._split(heap)
            test = _in_words(self.encoding, column, is_left)
            self.nodes[place] = Node(test, next_yes, next_no)
        return place

    def _sides(self, heap: int, box: _Box) -> tuple[_Box | None, _Box | None]:
        """The boxes of both sides of a node; ``None`` for a side that no row takes."""
        if not self.splits[heap]:
            return box, None
        column, is_left = self._split(heap)
        codes = box.get(column, np.ones_like(is_left))
        sides = codes & is_left, codes & ~is_left
        yes, no = ({**box, column: side} if side.any() else None for side in sides)
        return yes, no

    def _end(self, heap: int) -> Node:
        first = last = heap
        while first < len(self.splits):
            first, last = 2 * first + 1, 2 * last + 2
        below = np.arange(first, last + 1) - len(self.splits)
        leaves = below[self.reached[below]]
        answer = self.answers[leaves].mean(axis=0)
        if self.label.is_number:
            return Node(number=float(answer[0]), n_leaves=len(leaves))
        is_leaf = len(leaves) == 1
        arrays = self.forest.arrays
        if "counts" in arrays and not is_leaf:
            pooled = arrays["counts"][self.number, leaves].sum(axis=0)
            answer = normalised(np.maximum(pooled.astype(np.float64), 0.0))
        best = int(answer.argmax())
        share = None
        if not ("labels" in arrays and is_leaf):
            share = float(answer[best])
        return Node(label=self.label.classes[best], share=share, n_leaves=len(leaves))

    def _split(self, heap: int) -> tuple[int, BoolArray]:
        """The column of a split, and whether each of its codes goes to the left."""
        arrays = self.forest.arrays
        column = int(arrays["feature"][self.number, heap])
        codes = np.arange(self.encoding.n_codes[column])
        if "right" in arrays:
            words = arrays["right"][self.number, heap].astype("<u8")
            goes_right = np.unpackbits(words.view(np.uint8), bitorder="little")
            is_left = goes_right[codes] == 0
        else:
            threshold = arrays["threshold"][self.number, heap]
            is_equality = arrays["equals"][self.number, heap]
            is_left = codes == threshold if is_equality else codes <= threshold
        return column, is_left


def _encoding(forest: Forest, schema: Schema) -> Encoding:
    """The bins that the splits of trees refer to."""
    match _reader(forest, schema):
        case BoostedScores() | BoostedNumbers() as boosted:
            return boosted.encoding
        case LeafNumbers() | PooledSums() as reader:
            return reader.sums.encoding
        case StackedSums(layers=layers):
            return layers[0].encoding
    raise AssertionError("a reader without bins")


def _answers(forest: Forest, schema: Schema, number: int) -> Float64Array:
    """What each leaf of a tree alone answers; see :class:`_Tree`."""
    arrays = forest.arrays
    match _reader(forest, schema):
        case Numbers() as reader:
            scores = reader.packed.trees.values[number].T
            return reader.numbers(scores)
        case BoostedScores() as boosted:
            scores = boosted.arrays["start"] + arrays["scores"][number]
            return of_scores(scores, boosted.read_out, temperature=boosted.temperature)
        case PooledSums() as pooled if "selections" in arrays:
            return to_probabilities(pooled.sums.values[number], pooled.read_out)
    if "labels" in arrays:
        shares: Float64Array = np.eye(schema.n_classes)[arrays["labels"][number]]
        return shares
    counts = arrays["counts"][number].astype(np.float64)
    return normalised(np.maximum(counts, 0.0))


def _reader(forest: Forest, schema: Schema) -> object:
    slug = forest.plan.algorithm
    read_out = catalogue.read_outs(slug, schema.label)[0]
    return catalogue.family(slug).reader(forest, schema, read_out)


def _in_words(encoding: Encoding, column: int, is_left: BoolArray) -> str:
    """What the rows have in common that a split sends to the left.

    Args:
        is_left: bool ``(n_codes,)``, for each code of the column.
    """
    features = encoding.schema.features
    if column >= len(features):
        return _pair_in_words(encoding, column, n_left=int(is_left.sum()))
    feature, edges = features[column], encoding.edges[column]
    if edges is None:
        return _categories_in_words(feature, is_left)
    # MISSING has the last code
    values = is_left[: len(edges) + 1]
    n_left = int(values.sum())
    may_be_missing = len(is_left) > len(values)
    if n_left == len(values):
        return f"{feature.name} is not missing"
    if n_left == 0:
        return f"{feature.name} is missing"
    words = f"{feature.name} ≤ {_bound_in_words(feature, float(edges[n_left - 1]))}"
    if may_be_missing and is_left[-1]:
        words += " or missing"
    return words


def _bound_in_words(feature: Feature, edge: float) -> str:
    """The largest value below an edge: edges between whole values are at halves."""
    if feature.is_categorical:
        return feature.categories[min(floor(edge), len(feature.categories) - 1)]
    if feature.type == "numeric":
        # all digits before the point: two questions of a tree would look alike
        return f"{edge:.6g}" if abs(edge) < _FIRST_WITH_ALL_DIGITS else f"{edge:.1f}"
    return str(plain_number(float(floor(edge)), feature.first_day))


def _categories_in_words(feature: Feature, is_left: BoolArray) -> str:
    names = [*feature.categories, "OTHER"]
    if feature.missing:
        names.append("missing")
    n_codes = len(is_left)
    # the last code of a column of 256 stands for all that is left
    names[n_codes - 1 :] = [" or ".join(names[n_codes - 1 :])]
    left = list(_chosen(names, is_left))
    right = list(_chosen(names, ~is_left))
    if len(right) < len(left):
        return f"{feature.name} is not {' or '.join(right)}"
    return f"{feature.name} is {' or '.join(left)}"


def _chosen(names: Sequence[str], chosen: BoolArray) -> Iterator[str]:
    for name, is_chosen in zip(names, chosen.tolist(), strict=True):
        if is_chosen:
            yield name


def _pair_in_words(encoding: Encoding, column: int, *, n_left: int) -> str:
    """A split by the sum or the difference of two features' bins, as places from 0 on."""
    features = encoding.schema.features
    position = column - len(features)
    pair = encoding.pairs[position // COLUMNS_PER_PAIR]
    first, second = (features[index].name for index in pair)
    most = n_left - 1
    if position % COLUMNS_PER_PAIR == 0:
        return f"place of {first} + place of {second} ≤ {most}"
    # the second place is mirrored
    most -= n_places(encoding.n_own_codes, pair) - 1
    return f"place of {first} − place of {second} ≤ {most}"
