"""Nothing that reads or holds rows stops, cuts or chooses by a number of rows, but
where a reason is listed here.

If a job read at most so many rows, or row groups, or by position, then one row more or
less would let another row in or out, and the release would change by both. No test of
small files notices.
"""

import ast
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.support.sources import file_of, name_of, sources

ROWS = (
    *(
        "CodedBlock",
        "CodedColumns",
        "CodedPart",
        "CodedRows",
        "ColumnBlock",
        "LocalRows",
        "RowGroups",
        "RowParts",
        "SanitisedRows",
    ),
    *(
        "CodedDistributedRows",
        "ParquetFile",
        "ShardStates",
        "StoredRows",
        "TrainingRows",
        "node_rows",
        "read_row_group",
    ),
)
"""Names of which a module that reads or holds rows needs one."""

OTHERS = {
    "grovekeeper_client/cli/prediction_tables.py": "reads rows to predict, which no release depends on",
    "app/datasets/columnar_decoding.py": "decodes the body of an upload, whose rows another process counts",
    "grovekeeper_forests/algorithms/rpf/grow.py": "computes with sums over rows, and passes rows on whole",
    "grovekeeper_forests/data/sanitiser.py": "defines what one cell of one row becomes; reads requests of predictions",
    "grovekeeper_forests/trees/tree_growth.py": "computes with sums over rows, and passes rows on whole",
}
"""Modules that name rows and neither read nor divide those of a dataset."""

IN_BLOCKS = "a block of rows; the next one begins where this one ends (tests/privacy/test_many_rows.py)"
BYTES = "bytes of one value, not rows"
CALLS = "calls of a question, not rows"
CODES = "codes, cells or columns by public bins, not rows"
FEATURES = "every feature of the public schema"
NUMBER = "the next number of a name, or the next worker in turn"
PUBLIC = "public numbers alone"
EVERY = "every part, in order"
CONDITION = "a public condition on the number of one row"

REASONS: dict[str, dict[tuple[str, str], str]] = {
    "app/datasets/code_files.py": {
        ("file_of", "digest.hex()[:16]"): BYTES,
        (
            "CodeReader.__init__",
            "-n_rows * n_bits // 8",
        ): "bytes of the codes of a row group, rounded up",
        ("CodeReader.read", "self._n_bits // 8"): BYTES,
        (
            "CodeReader.read",
            "self._ends[group:group + 2]",
        ): "where the codes of one row group begin and end",
        (
            "CodeReader.read",
            "text[n_low:]",
        ): "the second part of the codes of one row group",
        (
            "CodeReader.read",
            "text[:n_low]",
        ): "the first part of the codes of one row group",
        (
            "CodeWriter._require_room",
            "left_bytes < limits.MIN_FREE_UPLOAD_BYTES",
        ): "whether codes are stored",
        (
            "_make_room",
            "others[:-(MAX_FILES - 1)]",
        ): "files of codes",
    },
    "app/datasets/erasure.py": {("_copy", "stays[start:end]"): IN_BLOCKS},
    "app/datasets/private_rows.py": {
        ("Selection.__init__", "scope.keys() <= declared.keys()"): PUBLIC,
        (
            "shards",
            "waiting >= n_rows",
        ): "ends a shard; the row group begins the next one",
        ("shards", "starts[1:]"): "the end of each shard is the start of the next one",
        ("_read_values", "enumerate(selection.schema.features)"): FEATURES,
        (
            "_coded_groups",
            "sum(group_rows) >= code_files.FEWEST_ROWS",
        ): "whether codes are stored, not what is read",
        ("_column_block", "enumerate(selection.schema.features)"): FEATURES,
        (
            "_row_groups",
            "groups[within.start:within.stop]",
        ): "the row groups of a shard (tests/pure/datasets/test_shards.py)",
        ("_codes_of_values", "enumerate(public.schema.features)"): FEATURES,
        ("_row_ids", "ids[start:end]"): IN_BLOCKS,
        (
            "_row_ids",
            "ids_of_buffer[chunk.offset:chunk.offset + len(chunk)]",
        ): "all rows of a chunk",
    },
    "app/datasets/row_layout.py": {
        ("arrow_schema", "enumerate(schema.features)"): FEATURES,
        (
            "hash_cells",
            "number_of(digest(dataset_key, id_, 'sha256'), 'big') % n_cells",
        ): "a cell, by hash",
        ("hash_cells", "row_ids[start:start + ROW_ID_BYTES]"): "the id of one row",
    },
    "grovekeeper_forests/algorithms/bms_rf/grow.py": {
        (
            "grow_forest",
            "enumerate(zip(plans, schemas, strict=True))",
        ): "every planned layer",
        (
            "grow_forest",
            "zip(grown, schemas, projection, strict=False)",
        ): "layers: one more schema than layers so far",
        ("draw_projection", "enumerate(schema.features)"): FEATURES,
        ("draw_projection", "weights.shape[:2]"): PUBLIC,
    },
    "grovekeeper_forests/algorithms/literature/medians.py": {
        ("choose_medians", "enumerate(groups)"): "every node of a level",
        ("choose_medians", "continue"): "a node without a public candidate",
        ("split_evenness", "slice(feature, feature + 1)"): CODES,
        (
            "grow_at_exact_medians.choose",
            "size >= int(parameters['min_rows'])",
        ): "features that label accounts do not protect",
        (
            "grow_at_exact_medians.choose",
            "even > -size",
        ): "features that label accounts do not protect",
        ("exact_evenness", "slice(feature, feature + 1)"): CODES,
        ("exact_evenness", "histogram[:, begin:end]"): CODES,
        ("label_trees", "rows.y >= 0"): "a row's own label: whether it is known",
    },
    "grovekeeper_forests/algorithms/nbrt/boosted_rows.py": {
        (
            "first_split_utilities",
            "slice(first, min(first + _BLOCK, len(encoding.n_codes)))",
        ): CODES,
        ("first_split_utilities", "min(first + _BLOCK, len(encoding.n_codes))"): CODES,
        ("sides_of_first_split", "n_leaves // N_SIDES"): PUBLIC,
        (
            "scores_of_first_tree",
            "min(max(int(step.to_integral_value(ROUND_HALF_EVEN)), -limit), limit)",
        ): "a released score",
    },
    "grovekeeper_forests/algorithms/rpf/reweighted_rows.py": {
        ("LocalReweightedRows.__init__", "n_codes[:len(X)]"): CODES,
        ("LocalReweightedRows.__init__", "len(n_codes) <= _SLAB"): CODES,
        ("LocalReweightedRows.joint_histogram", "slice(feature, feature + 1)"): CODES,
        (
            "LocalReweightedRows.descend",
            "int(feature.max(initial=0)) >= len(self._X)",
        ): CODES,
        ("LocalReweightedRows._columns", "features.stop <= len(self._X)"): CODES,
        ("LocalReweightedRows._computed", "indices >= self._n_own"): CODES,
        ("_slabs", "slice(start, min(start + _SLAB, features.stop))"): CODES,
        ("_slabs", "min(start + _SLAB, features.stop)"): CODES,
        ("", "UNIT // 2"): PUBLIC,
        ("LocalResidualRows._reweigh", "residuals > 0"): "the side of each row itself",
    },
    "grovekeeper_forests/bins/releases.py": {
        ("release_cuts", "enumerate(private_features(schema))"): FEATURES,
        ("release_cuts", "cuts[row, :len(feature_cuts)]"): CODES,
        ("_cuts_of", "stop - start < 2"): CODES,
        ("_cuts_of", "continue"): CODES,
        ("_cuts_of", "below[start + 1:stop]"): CODES,
        ("_cuts_of", "of_edges[start:stop - 1]"): CODES,
        ("_cell_counts_of", "rows.code_counts(index)[:n_cells(feature, grid)]"): CODES,
    },
    "grovekeeper_forests/data/coded_rows.py": {
        ("CodedBlock.of", "codes >= _BYTE"): CODES,
        ("CodedBlock.of", "n_bits > _NINTH_BIT"): CODES,
        ("CodedBlock.of", "n_bits < _NINTH_BIT"): CODES,
        ("CodedBlock.of", "codes[:, :0]"): "no ninth bits, of all rows",
        ("CodedBlock.of", "low[:, :0]"): "no ninth bits, of all rows",
        ("TakenBlocks.codes", "enumerate(self._tables)"): FEATURES,
        (
            "CodedColumns.take",
            "n_joined + block.n_rows > n_rows",
        ): ("ends a part; the block begins the next one"),
        ("code_bits", "most > MAX_CODES"): PUBLIC,
        ("code_bits", "most > _NINE_BITS"): PUBLIC,
        ("code_bits", "most > _BYTE"): PUBLIC,
        ("_tables", "enumerate(encoding.schema.features)"): FEATURES,
        ("_tables", "table[:len(fine)]"): CODES,
        ("_places", "column[start:start + PART_ROWS]"): IN_BLOCKS,
        ("_places", "min(features.n_rows - start, PART_ROWS)"): IN_BLOCKS,
        ("_places", "slice(start, start + block.n_rows)"): IN_BLOCKS,
        ("_places", "features.take(encoding, PART_ROWS)"): EVERY,
        ("_places", "slice(start, start + taken.n_rows)"): IN_BLOCKS,
        ("made_of", "enumerate(parts)"): EVERY,
        ("in_threads.untaken", "next(waiting, _NONE)"): EVERY,
        ("in_threads.untaken", "return"): "no part is left",
        ("in_threads", "min(_n_processors(), MAX_THREADS, len(parts))"): "threads",
    },
    "grovekeeper_forests/estimators.py": {
        ("_PrivateTrees._columns", "enumerate(given)"): "columns",
        (
            "_PrivateForest._label",
            "len({type(each) for each in classes}) > 1",
        ): "classes",
        ("_codes_of", "enumerate(label.classes)"): "classes",
        ("_PrivateRegressor._label", "0 < width < math.inf"): "public bounds",
        ("_PrivateTrees._declared", "types <= _TYPES"): "types of features",
        ("_PrivateTrees._plan", "size < 1"): "a public number",
        ("_by_cell", "enumerate(X.columns)"): "columns",
        ("_PrivateTrees._rows", "known >= 0"): "the label of one row",
    },
    "grovekeeper_forests/releases/evaluation/draw.py": {
        (
            "_exact",
            "np.minimum((shares[:, 1] * plan.score_bins).astype(np.int64), plan.score_bins - 1)",
        ): "the bin of a score",
    },
    "grovekeeper_forests/releases/evaluation/answers.py": {
        ("_blocks", "rows.y[start:start + BLOCK_ROWS]"): IN_BLOCKS,
        ("answers", "shares[:len(y)]"): "the rows that fill up the last block",
        (
            "numbers",
            "model.numbers(block)[:len(y)]",
        ): "the rows that fill up the last block",
        ("_block", "column[start:start + BLOCK_ROWS]"): IN_BLOCKS,
        ("_block", "block[:len(values)]"): "the rows that fill up the last block",
    },
    "grovekeeper_forests/releases/evaluation/error_sums.py": {
        (
            "_clamped",
            "np.clip(differences, -scale.largest, scale.largest)",
        ): "the error of a row",
        ("in_steps", "np.clip(finite, -steps, steps)"): "what a row adds",
    },
    "grovekeeper_forests/releases/statistics/draw.py": {
        ("release_sums_of", "exact[start:end]"): CODES,
        ("_by_grid_cell", "by_cell[:n_cells]"): "empty cells are in no cell of a grid",
        ("_released", "_by_grid_cell(counts, table) // per_row(events[0])"): (
            "each row adds exactly so many steps"
        ),
    },
    "grovekeeper_forests/releases/statistics/sums.py": {
        ("_codes", "values < 0"): "a label of no declared class: the cell OTHER",
        ("_bins", "edges[:-1]"): CODES,
        ("_bins", "0.0 < scale < np.inf"): PUBLIC,
        ("_bins", "n_alike > _MOST_ALIKE"): PUBLIC,
        ("_bins", "values >= edges[bins]"): "whether the number of a row is in a bin",
        ("_meets", "values < 0"): "an empty label, which a condition may name",
        ("_meets", "values >= condition.lower"): CONDITION,
        ("_meets", "values < condition.below"): CONDITION,
        (
            "_exact",
            "np.clip(np.nan_to_num(added, nan=0.0), -steps, steps)",
        ): "what one row adds",
        (
            "_feature",
            "next((feature for feature in schema.features if feature.name == name))",
        ): FEATURES,
    },
    "grovekeeper_forests/remote.py": {
        ("loads", "data[8:8 + int.from_bytes(data[:8], 'little')]"): BYTES,
        ("loads", "data[:8]"): BYTES,
        ("_value", "slice(*content)"): CODES,
        ("DistributedParts.total", "grown.calls[grown.n_answered:n]"): CALLS,
        ("DistributedParts.total", "grown.calls[:n]"): CALLS,
        ("DistributedParts.map", "next(self.numbers)"): NUMBER,
        ("ShardStates._at", "branch.skipped <= state.n_calls <= n_calls"): CALLS,
        ("ShardStates._at", "branch.calls[state.n_calls - branch.skipped:]"): CALLS,
    },
    "grovekeeper_forests/trees/tree_histograms.py": {
        ("shards", "int.from_bytes(digest) % n_shards"): "a tree, by hash",
        ("structure_rows", "int.from_bytes(digest) < below"): "a role, by hash",
        ("_split", "raw[start:start + width]"): "the id of one row",
    },
    "app/services/drawing/dask_fleet.py": {
        ("DaskFleet.__init__", "next(workers)"): NUMBER,
        ("DaskFleet._divided", "next(self._numbers)"): NUMBER,
        ("DaskFleet._divided", "next(workers)"): NUMBER,
        ("DaskFleet._divided", "answer[1:]"): BYTES,
        ("DaskFleet.total", "answer[1:]"): BYTES,
        ("DaskFleet._ask", "next(self._numbers)"): NUMBER,
        (
            "DaskFleet._groups",
            "min(workers, key=lambda worker: len(groups.get(worker, ())))",
        ): "the worker that is asked",
    },
}
"""Why each place leaves no row out, by module, function and text; a text that stands
twice in a function has the same reason (:data:`TWICE`).
"""

TWICE = {
    (
        "grovekeeper_forests/algorithms/literature/medians.py",
        "exact_evenness",
        "histogram[:, begin:end]",
    ),
    (
        "grovekeeper_forests/algorithms/literature/medians.py",
        "split_evenness",
        "slice(feature, feature + 1)",
    ),
}

CUTS = frozenset(
    {
        *(
            "argpartition",
            "choice",
            "clip",
            "enumerate",
            "head",
            "islice",
            "min",
            "minimum",
            "next",
            "resize",
        ),
        *("sample", "slice", "take", "takewhile", "dropwhile", "truncate"),
    }
)
"""Functions and methods that may leave a part out, or choose by position."""


def places(
    tree: ast.AST, function: str = "", *, in_loop: bool = False
) -> Iterator[tuple[str, str]]:
    """Every place where a row may be left out: its function, and its text."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.AnnAssign):  # not its annotation
            yield from (
                places(ast.Expr(node.value), function, in_loop=in_loop)
                if node.value
                else ()
            )
            continue
        if _leaves_out(node, in_loop=in_loop):
            yield (
                function,
                type(node).__name__.lower()
                if isinstance(node, ast.stmt)
                else ast.unparse(node),
            )
        is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
        name = f"{function}.{node.name}".lstrip(".") if is_definition else function
        yield from places(
            node,
            name,
            in_loop=isinstance(node, ast.For | ast.While)
            or (in_loop and not is_definition),
        )


def _leaves_out(node: ast.AST, *, in_loop: bool) -> bool:
    match node:
        case ast.Break() | ast.Continue():
            return True
        case ast.Return():
            return in_loop
        case ast.Subscript():
            return any(
                isinstance(part, ast.Slice) and (part.lower or part.upper or part.step)
                for part in ast.walk(node.slice)
            )
        case ast.Compare():
            return any(
                isinstance(operator, ast.Lt | ast.LtE | ast.Gt | ast.GtE)
                for operator in node.ops
            )
        case ast.BinOp():
            return isinstance(node.op, ast.Mod | ast.FloorDiv)
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name)):
            return name in CUTS or (
                name == "zip" and "strict=True" not in ast.unparse(node)
            )
    return False


def found(module: str) -> Counter[tuple[str, str]]:
    return Counter(places(ast.parse(file_of(module).read_text(encoding="utf-8"))))


def modules() -> list[str]:
    """The modules that read or hold rows."""
    paths = (
        path
        for path in sources()
        if any(name in path.read_text(encoding="utf-8") for name in ROWS)
    )
    return sorted({name_of(path) for path in paths} - OTHERS.keys())


def test_nothing_that_reads_rows_leaves_one_out_by_a_number_of_rows() -> None:
    for module in modules():
        listed = Counter(
            {
                place: 1 + ((module, *place) in TWICE)
                for place in REASONS.get(module, {})
            }
        )
        unlisted = found(module) - listed
        assert not unlisted, (
            f"{module}: {sorted(unlisted)} may leave rows out: write it otherwise, or say why not"
        )
        assert not listed - found(module), (
            f"{module}: {sorted(listed - found(module))} is gone: remove its reason"
        )


def test_every_listed_module_is_there() -> None:
    assert REASONS.keys() <= set(modules())
    assert all(file_of(module).exists() for module in OTHERS)
    assert {
        "app/datasets/private_rows.py",
        "app/services/drawing/shard_tasks.py",
        "grovekeeper_forests/releases/profile/draw.py",
        "grovekeeper_forests/releases/statistics/sums.py",
    } <= set(modules())


@pytest.mark.parametrize(
    "careless",
    [
        "for group in groups:\n    read(group)\n    if sum(map(len, y)) > 2_000_000:\n        break",
        "for group in groups:\n    if sum(map(len, y)) == N:\n        continue\n    read(group)",
        "for group in groups:\n    if len(y) == N:\n        return",
        "while n_read < 2_000_000:\n    read(group)",
        "for group in groups[:16]:\n    read(group)",
        "for group in islice(groups, 16):\n    read(group)",
        "for group in range(min(stored.num_row_groups, 16)):\n    read(group)",
        "for number, group in enumerate(groups):\n    read(group)",
        "for group, codes in zip(groups, ahead):\n    yield codes",
        "yield [codes for group, codes in ahead if group % 2]",
        "table = table.slice(0, 2**21)",
        "y = y[-N:]",
        "y = np.clip(y, 0, 1).take(places)",
    ],
)
def test_careless_readers_are_seen(careless: str) -> None:
    honest = "def _read_codes():\n    for group in groups:\n        read(group)\n"
    indented = careless.replace("\n", "\n    ")
    assert not list(places(ast.parse(honest)))
    assert list(places(ast.parse(f"{honest}\n    {indented}\n")))
