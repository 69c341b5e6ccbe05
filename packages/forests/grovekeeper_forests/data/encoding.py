"""Encodes sanitised values as small integers by public bins, and lists the splits that
the bins allow.

Every function depends on the schema and public or released numbers alone, so the code
of a row depends on no other row: the map is record-wise (lemma L6,
docs/proofs/lemmas.md). Edges of public bins are exact fractions of the declared bounds,
each rounded to the nearest double in the last step, so that they are equal on every
machine.

Binned sums and differences of two ordered columns give oblique splits without any
further release. The bins of both columns of a pair are mapped to places 0 … m − 1,
where m is the larger number of bins but at most :data:`MAX_PLACES`. The sum and the
difference are then columns of 2m − 1 codes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from itertools import combinations
from math import floor

import numpy as np
from numpy.typing import NDArray

from grovekeeper_forests.array_types import (
    BoolArray,
    Float64Array,
    Int32Array,
    Int64Array,
    UInt8Array,
)
from grovekeeper_forests.data.sanitiser import SanitisedColumns
from grovekeeper_forests.data.schema import Feature, Schema
from grovekeeper_forests.kept import kept_property
from grovekeeper_forests.kernels.arrays import Splits
from grovekeeper_forests.kernels.prediction import CodeSums, CodeTables, ColumnRule

Positions = Callable[[int, int], Iterable[tuple[int, int]]]
"""Maps the bounds of a number, in a common unit, to the cuts of its range: numerators
and denominators in that unit.
"""


def public_edges(
    lower: float, upper: float, *, whole: bool, widest_listed: int, positions: Positions
) -> Float64Array:
    """The edges of a number, ascending.

    Args:
        lower: declared.
        upper: declared; at least ``lower``.
        whole: whether the number is an integer; its edges are at halves.
        widest_listed: the largest width of an integer range that has one bin per value.
        positions: computes the cuts of all other ranges.

    Returns:
        Read-only float64 in [lower, upper); empty where the bounds are equal.
    """
    low, low_scale = lower.as_integer_ratio()
    high, high_scale = upper.as_integer_ratio()
    scale = max(low_scale, high_scale)  # both are powers of two
    low, high = low * (scale // low_scale), high * (scale // high_scale)
    if whole and high - low <= widest_listed:
        rounded = {(2 * value + 1) / 2 for value in range(low, high)}
    elif whole:
        rounded = {
            (2 * (over // (under * scale)) + 1) / 2
            for over, under in positions(low, high)
        }
    else:  # true division of integers rounds to nearest, whatever their size
        rounded = {over / (under * scale) for over, under in positions(low, high)}
    # An edge at ``upper`` would leave a bin that no sanitised value reaches.
    inside = sorted(edge for edge in rounded if lower <= edge < upper)
    edges = np.array(inside, dtype=np.float64)
    edges.flags.writeable = False
    return edges


MAX_BINS = 255
"""Most bins of a number; MISSING takes one more code, so that codes fit into one byte."""

GEOMETRIC_SHARE = Fraction(1, 4)
"""Share of the edges that halve their distance to zero (or to the nearer bound), for
skewed columns.
"""

FIRST_HALVING = 4
"""The first halving edge is at 2^-4 of the range; equal steps cover the rest."""


NO_SPLIT = 255
"""Threshold of a node whose box cannot be split: no code is above it, so every row goes
left.
"""


@dataclass(frozen=True)
class Candidates:
    """Every split that the public schema allows, as parallel arrays; candidate r is one
    entry of each.

    A row goes right iff ``code != threshold`` where ``equals``, else iff ``code >
    threshold``. The *box* of a node is the mask, bool ``(n_candidates,)``, over the
    candidates that cut the region which released splits above leave to the node. A box
    is a function of releases, so a selection restricted to the box keeps its guarantee
    (lemma L1 needs candidates that do not depend on the rows *given* the earlier
    releases).

    Attributes:
        feature: int32 ``(n_candidates,)``, in ascending order.
        threshold: uint8 ``(n_candidates,)``.
        equals: bool ``(n_candidates,)``: one value against the rest.
    """

    feature: Int32Array
    threshold: UInt8Array
    equals: BoolArray

    def __len__(self) -> int:
        return len(self.feature)

    def of(self, features: slice) -> slice:
        """The candidates on consecutive columns."""
        return slice(
            *np.searchsorted(self.feature, [features.start, features.stop]).tolist()
        )

    def splits_on(self, features: slice) -> Splits:
        """The candidates on consecutive columns, which are counted from the first of
        them.
        """
        here = self.of(features)
        return (
            self.feature[here] - np.int32(features.start),
            self.threshold[here],
            self.equals[here],
        )

    @property
    def root(self) -> BoolArray:
        """The box of the root: every candidate."""
        return np.ones_like(self.equals)

    def children(
        self, box: BoolArray, chosen: int | None
    ) -> tuple[BoolArray, BoolArray]:
        """The boxes of the left and the right child of a released split.

        Args:
            box: of the parent.
            chosen: index of the released candidate; ``None`` where the parent has no
                candidate and every row goes left.
        """
        if chosen is None:
            return box, np.zeros_like(box)
        alike = self.of(slice(self.feature[chosen], self.feature[chosen] + 1))
        left = box.copy()
        right = box.copy()
        if self.equals[chosen]:
            left[alike] = False
            right[chosen] = False
            rest = alike.start + np.flatnonzero(right[alike])
            # With two values left, both candidates are the same split. Counted twice, it
            # would be twice as likely.
            if len(rest) == 2:
                right[rest[1]] = False
        else:
            left[chosen : alike.stop] = False
            right[alike.start : chosen + 1] = False
        return left, right

    def splits(self, chosen: list[int | None]) -> Splits:
        """Feature, threshold and equality of each node's released candidate; ``None``
        sends every row left.
        """
        feature = np.zeros(len(chosen), dtype=np.int32)
        threshold = np.full(len(chosen), NO_SPLIT, dtype=np.uint8)
        equals = np.zeros(len(chosen), dtype=np.bool_)
        split = [node for node, choice in enumerate(chosen) if choice is not None]
        candidates = [choice for choice in chosen if choice is not None]
        feature[split] = self.feature[candidates]
        threshold[split] = self.threshold[candidates]
        equals[split] = self.equals[candidates]
        return feature, threshold, equals


@dataclass(frozen=True)
class Encoding:
    """The public bins of a schema.

    Attributes:
        schema: the public schema of the encoded columns.
        edges: per number, ascending float64 edges (code = number of edges below the
            value); ``None`` for a categorical feature with one code per category.
            Ordered categories with edges are grouped like the integers 0, 1, 2, ….
        n_codes: int32 ``(n_columns,)``: codes of column f are ``0 … n_codes[f] − 1``,
            at most 256, except in the public grid. Columns are the features, then the
            columns of the pairs.
        pairs: pairs of features whose sums and differences are further columns; see
            ``grovekeeper_forests.data.encoding``.
    """

    schema: Schema
    edges: tuple[Float64Array | None, ...]
    n_codes: Int32Array
    pairs: tuple[Pair, ...] = ()

    @classmethod
    def of(cls, schema: Schema, n_bins: int) -> Encoding:
        """The bins of ``schema`` with at most ``n_bins`` bins per number; MISSING takes
        one more.

        Args:
            schema: public columns.
            n_bins: 2 to :data:`MAX_BINS`. Categories are not grouped: each has a code,
                whatever ``n_bins`` is.
        """
        assert 2 <= n_bins <= MAX_BINS
        edges: list[Float64Array | None] = []
        for feature in schema.features:
            if feature.is_categorical:
                edges.append(None)
                continue
            is_whole = feature.type != "numeric"
            edges.append(
                _number_edges(feature.lower, feature.upper, n_bins, whole=is_whole)
            )
        return cls.with_edges(schema, tuple(edges))

    @classmethod
    def with_edges(
        cls, schema: Schema, edges: tuple[Float64Array | None, ...]
    ) -> Encoding:
        """The bins between given edges, which are public or released.

        Args:
            schema: public columns.
            edges: as the attribute; at most :data:`MAX_BINS` − 1 per feature.
        """
        n_codes = []
        for feature, feature_edges in zip(schema.features, edges, strict=True):
            n_extra = 1 + feature.missing
            if feature_edges is None:
                n_codes.append(min(len(feature.categories) + n_extra, 256))
            else:
                n_codes.append(len(feature_edges) + n_extra)
        return cls(schema, edges, np.array(n_codes, dtype=np.int32))

    def paired(self, pairs: tuple[Pair, ...]) -> Encoding:
        """This encoding with the columns of some pairs of features after the features."""
        return replace(
            self,
            n_codes=np.concatenate((self.n_codes, n_pair_codes(self.n_codes, pairs))),
            pairs=pairs,
        )

    @property
    def n_own_codes(self) -> Int32Array:
        """Codes per feature, without pairs."""
        return self.n_codes[: len(self.edges)]

    def encode_all(self, columns: SanitisedColumns) -> UInt8Array:
        """Codes of rows in every column, including the columns of pairs; otherwise like
        :meth:`encode`.
        """
        codes = self.encode(columns)
        if not self.pairs:
            return codes
        return np.concatenate((codes, self._pair_columns.of(codes)))

    def encode(self, columns: SanitisedColumns) -> UInt8Array:
        """Codes of PRIVATE or caller's rows; record-wise and total.

        Returns:
            uint8 ``(n_features, n_rows)``, feature-major; without the columns of pairs.
        """
        return self.tables.codes(columns.columns, columns.n_rows)

    @kept_property
    def tables(self) -> CodeTables:
        """The bins of the features, for a compiled loop."""
        features = zip(self.schema.features, self.edges, self.n_own_codes, strict=True)
        return CodeTables(
            _rule(feature, edges, int(n_codes)) for feature, edges, n_codes in features
        )

    @kept_property
    def _pair_columns(self) -> CodeSums:
        return pair_columns(self.n_own_codes, self.pairs)

    def of_columns(
        self, columns: NDArray[np.integer]
    ) -> tuple[Encoding, Int64Array, Int64Array]:
        """The part of this encoding that some columns need.

        Args:
            columns: distinct columns of this encoding, integers ``(n,)``.

        Returns:
            The smaller encoding; the features of its schema, as features of this one;
            and the number of each of ``columns`` in it.
        """
        n_features = len(self.edges)
        of_features = columns[columns < n_features]
        of_pairs = columns[columns >= n_features] - n_features
        pair_numbers = set((of_pairs // COLUMNS_PER_PAIR).tolist())
        chosen = sorted(self.pairs[number] for number in pair_numbers)
        # A column of a pair is computed from the codes of both features.
        features = sorted(set(of_features.tolist()).union(*chosen))
        place = {feature: position for position, feature in enumerate(features)}
        declared = tuple(self.schema.features[feature] for feature in features)
        edges = tuple(self.edges[feature] for feature in features)
        smaller = Encoding.with_edges(replace(self.schema, features=declared), edges)
        if chosen:
            smaller = smaller.paired(
                tuple((place[first], place[second]) for first, second in chosen)
            )
        numbers = dict(place)
        for position, pair in enumerate(chosen):
            for part in range(COLUMNS_PER_PAIR):
                original = n_features + COLUMNS_PER_PAIR * self.pairs.index(pair) + part
                numbers[original] = len(features) + COLUMNS_PER_PAIR * position + part
        return (
            smaller,
            np.array(features, dtype=np.int64),
            np.array([numbers[column] for column in columns.tolist()], dtype=np.int64),
        )

    @kept_property
    def candidates(self) -> Candidates:
        """All public splits: thresholds for numbers and ordered categories, one
        category against the rest otherwise.

        No candidate splits off OTHER alone, because the owner declares the categories
        that are expected to occur.
        """
        feature: list[int] = []
        threshold: list[int] = []
        equals: list[bool] = []
        for index, declared in enumerate(self.schema.features):
            is_binned = self.edges[index] is not None
            values, one_against_rest = _cuts(
                declared, int(self.n_codes[index]), is_binned=is_binned
            )
            feature += [index] * len(values)
            threshold += values
            equals += [one_against_rest] * len(values)
        for index in range(len(self.edges), len(self.n_codes)):
            n_cuts = int(self.n_codes[index]) - 1
            feature += [index] * n_cuts
            threshold += range(n_cuts)
            equals += [False] * n_cuts
        return Candidates(
            np.array(feature, dtype=np.int32),
            np.array(threshold, dtype=np.uint8),
            np.array(equals, dtype=np.bool_),
        )


def _rule(feature: Feature, edges: Float64Array | None, n_codes: int) -> ColumnRule:
    """The codes of a feature's sanitised values; MISSING has the last code, and OTHER
    is the highest ordered category.

    A category above the last code (MISSING after 255 others) gets the last code.
    """
    if edges is None:
        return ColumnRule(None, n_codes - 1, np.nan, n_codes - 1)
    if not feature.is_categorical:
        return ColumnRule(edges, np.inf, np.nan, n_codes - 1)
    return ColumnRule(
        edges, len(feature.categories) - 1, feature.missing_code, n_codes - 1
    )


def _cuts(feature: Feature, n_codes: int, *, is_binned: bool) -> tuple[list[int], bool]:
    """Thresholds (or values, if one-against-rest) that leave neither side empty."""
    if is_binned:
        return list(range(n_codes - 1)), False
    declared = len(feature.categories)
    # MISSING after 255 other codes shares the last code (see ``_rule``): no cut splits it
    # off.
    has_missing = feature.missing and feature.missing_code < n_codes
    if feature.ordered:
        thresholds = list(range(declared - 1))
        if has_missing:
            # OTHER counts as the highest category; the cut above it splits off MISSING.
            thresholds.append(feature.missing_code - 1)
        return thresholds, False
    values = list(range(declared))
    if has_missing:
        values.append(feature.missing_code)
    if len(values) <= 2:
        # Of two values, both one-against-rest splits are equal, so only the first is
        # kept. One value has no split.
        values = values[:-1]
    return values, True


@lru_cache(maxsize=4096)
def _number_edges(
    lower: float, upper: float, n_bins: int, *, whole: bool
) -> Float64Array:
    """Equal steps over the range, and edges that halve toward zero (or toward the
    nearer bound if zero is outside).
    """

    def positions(low: int, high: int) -> Iterator[tuple[int, int]]:
        n_halving = floor((n_bins - 1) * GEOMETRIC_SHARE)
        n_steps = n_bins - n_halving
        for step in range(1, n_steps):
            yield low * n_steps + (high - low) * step, n_steps
        for step in range(n_halving):
            yield _halving(low, high, step)

    return public_edges(
        lower, upper, whole=whole, widest_listed=n_bins - 1, positions=positions
    )


def _halving(low: int, high: int, step: int) -> tuple[int, int]:
    power: int = 2 ** (step + FIRST_HALVING)
    if low >= 0:
        return low * power + (high - low), power
    if high <= 0:
        return high * power - (high - low), power
    # With zero inside, edges alternate between both sides of it.
    bound = low if step % 2 else high
    return bound, 2 ** (step // 2 + FIRST_HALVING)


def as_number(feature: Feature) -> Feature:
    """The numeric feature by which the grid represents a number or an ordered category."""
    if not feature.is_categorical:
        return feature
    assert feature.ordered
    top = float(len(feature.categories) - 1)
    return Feature(
        feature.name, "integer", lower=0.0, upper=top, missing=feature.missing
    )


def to_numbers(feature: Feature, column: Float64Array | Int32Array) -> Float64Array:
    """A sanitised column as numbers: OTHER counts as the highest category, MISSING is
    NaN. Record-wise (lemma L6).

    Args:
        feature: public.
        column: PRIVATE, or a caller's; float64 numbers, or int32 codes of ordered
            categories.
    """
    if not feature.is_categorical:
        return column.astype(np.float64, copy=False)
    codes = np.minimum(column, len(feature.categories) - 1).astype(np.float64)
    codes[column == feature.missing_code] = np.nan
    return codes


_EVERY_CODE = np.arange(256, dtype=np.uint8)

Pair = tuple[int, int]
"""Two features, by index."""

MAX_ORDERED = 32
"""Ordered columns of a schema whose pairs are tabulated: at most 496 pairs, 992
columns.
"""

MAX_PLACES = 32

COLUMNS_PER_PAIR = 2
"""The sum, then the difference of the two features."""


def pairs_of_schema(schema: Schema) -> tuple[Pair, ...]:
    """Every pair of numbers and ordered categories, in the order of the declaration."""
    return tuple(combinations(ordered_columns(schema), 2))


def ordered_columns(schema: Schema) -> list[int]:
    """Indices of the ordered columns that have a split."""
    return [
        index for index, feature in enumerate(schema.features) if _is_ordered(feature)
    ]


def _is_ordered(feature: Feature) -> bool:
    if feature.is_categorical:
        return feature.ordered and len(feature.categories) > 1
    return feature.lower < feature.upper


def n_pair_codes(n_feature_codes: Int32Array, pairs: Sequence[Pair]) -> Int32Array:
    """Number of codes of each column of pairs, int32 ``(2 · n_pairs,)``, from the
    numbers of the features.
    """
    sizes = [2 * n_places(n_feature_codes, pair) - 1 for pair in pairs]
    return np.repeat(np.array(sizes, dtype=np.int32), COLUMNS_PER_PAIR)


def n_places(n_feature_codes: Int32Array, pair: Pair) -> int:
    """Number of places that both columns of a pair are mapped to."""
    return min(int(max(n_feature_codes[pair[0]], n_feature_codes[pair[1]])), MAX_PLACES)


def pair_columns(n_feature_codes: Int32Array, pairs: Sequence[Pair]) -> CodeSums:
    """The columns of pairs, as sums of two tabulated codes.

    Args:
        n_feature_codes: public or released; codes per feature, int32 ``(n_features,)``.
        pairs: public.

    Returns:
        For every pair the sum, then the difference, of uint8 codes ``(n_features, n_rows)``.
    """
    features = list[Pair]()
    tables = list[Int32Array]()
    for pair in pairs:
        common = n_places(n_feature_codes, pair)
        # A table has 256 entries, one for each byte: a code that does not occur counts
        # as the last one.
        places = []
        for feature in pair:
            n_codes = int(n_feature_codes[feature])
            codes = np.minimum(_EVERY_CODE, n_codes - 1)
            places.append(to_places(codes, n_codes, common))
        first, second = places
        # A difference is a sum with the mirrored place, which keeps it from 0 on.
        features += [pair] * COLUMNS_PER_PAIR
        tables += [np.stack((first, second)), np.stack((first, common - 1 - second))]
    return CodeSums(features, tables)


def to_places(codes: UInt8Array, n_own: int, common: int) -> Int32Array:
    """Codes mapped to ``common`` places: the place that contains the middle of the bin."""
    wide = codes.astype(np.int32)
    if n_own == common:
        return wide
    return (2 * wide + 1) * common // (2 * n_own)
