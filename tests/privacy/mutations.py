"""Generates careless changes from the source of the modules that price, draw and
charge.

A module *draws* if it calls a mechanism of ``Randomness`` or passes a ``randomness``
on, and *prices* if it constructs a part of an event. In such a module every expression
is changed from which an argument of such a call follows: the call's own arguments,
assignments to the names in them, tests of the branches and iterations of the loops
around them, and functions of the module that they call. In the modules of ``WHOLE``
everything is changed.

Two kinds of changes are made: of numbers, operators and order (:func:`_replacements`),
and of what belongs together (:func:`_omissions`): a part of a key, an argument, a row,
a comparison or a check is left out, an act on several is done to the first alone, or
copies share their original.
"""

import ast
import builtins
import copy
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

ROOT: Final = Path(__file__).resolve().parents[2]
_ABOVE: Final = {
    "app": ROOT,
    "grovekeeper_common": ROOT / "clients" / "python",
    "grovekeeper_forests": ROOT / "packages" / "forests",
}
"""The folder above each package of the product."""

PRODUCT: Final = tuple(f"{package}." for package in _ABOVE)
SOURCES: Final = tuple(f"{folder / package}/" for package, folder in _ABOVE.items())
WHOLE: Final = (
    "grovekeeper_forests.account",
    "app.datasets.private_rows",
    "grovekeeper_forests.algorithms.nbrt.boosted_rows",
    "grovekeeper_forests.algorithms.nbrt.scales",
    "grovekeeper_forests.algorithms.nbrt.targets",
    "grovekeeper_forests.bins.number_targets",
    "grovekeeper_forests.noise.randomness",
    "grovekeeper_forests.catalogue",
    "grovekeeper_forests.remote",
    "app.jobs.queue",
    "app.ledger.accounts",
    "app.ledger.admission",
    "app.ledger.chain",
    "app.ledger.kept_states",
    "app.ledger.state",
    "app.ledger.populations",
    "app.ledger.reservations",
    "grovekeeper_forests.privacy.accountants.",
    "grovekeeper_forests.privacy.calibration",
    "grovekeeper_forests.releases.contract",
    "grovekeeper_forests.releases.evaluation.error_sums",
    "grovekeeper_forests.releases.forest.price",
    "grovekeeper_forests.releases.statistics.",
    "app.services.execution.charge",
    "app.services.drawing.dask_fleet",
    "app.services.drawing.perform",
    "app.services.drawing.shard_tasks",
)
"""Modules (or beginnings of their names) whose functions all decide about scales,
charges or which rows are read.
"""

READS_ROWS: Final = ("app.datasets.private_rows",)
"""Modules that read stored rows, and must read every row however many there are."""

MOST_ROWS: Final = 2**21
"""Rows after which a careless reader stops."""

ROWS_OF_A_GROUP: Final = 2**17
"""Rows of a row group in a large file of few columns; a loop over groups sees their
numbers.
"""

LEFT_OUT: Final = (
    "grovekeeper_forests.algorithms.nbrt.random_trees",
    "grovekeeper_forests.kernels.",
    "grovekeeper_forests.privacy.events",
    "grovekeeper_forests.privacy.receipts",
    "grovekeeper_forests.releases.forest.read",
)
"""Trees that are drawn without rows, compiled loops, whose tests compare them with
plain Python, and modules that describe events which others priced.
"""

DRAWS: Final = {
    "permute_and_flip",
    "select_exponential",
    "discrete_laplace",
    "rounded_gaussian",
}
NOISE: Final = {"discrete_laplace", "rounded_gaussian"}
EVENTS: Final = {
    "Part",
    "Sequential",
    "Parallel",
    "DiscreteLaplace",
    "RoundedGaussian",
    "PermuteAndFlip",
} | {"ExponentialMechanism"}
_OTHER_COMPARISONS: Final = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class Change(NamedTuple):
    """A node of a module's tree, by its place in ``ast.walk``, and the source that
    replaces it.
    """

    place: int
    source: str


@dataclass(frozen=True)
class Mutant:
    """One careless change.

    Attributes:
        module: dotted name.
        scope: function, method or constant of the module.
        key: module, scope, source before and after, and a number where a scope repeats
            them. No line number, so that the key lives as long as the expression.
        change: what :func:`tree_of` needs.
        lines: of the module, one of which runs before the change can show: a bit for
            each.
    """

    module: str
    scope: str
    key: str
    change: Change
    lines: int


def modules() -> list[str]:
    """The modules that price, draw or charge."""
    names = [module_of(str(path)) for path in _sources() if path.name != "__init__.py"]
    return [
        name
        for name in names
        if name.startswith(WHOLE) or (not name.startswith(LEFT_OUT) and _acts(name))
    ]


def file_of(module: str) -> Path:
    """The source file of a module."""
    above = _ABOVE.get(module.partition(".")[0], ROOT)
    return above.joinpath(*module.split(".")).with_suffix(".py")


def module_of(file: str) -> str:
    """Inverse of :func:`file_of`."""
    (above,) = (
        folder
        for package, folder in _ABOVE.items()
        if file.startswith(f"{folder / package}/")
    )
    return ".".join(Path(file).relative_to(above).with_suffix("").parts)


def _sources() -> list[Path]:
    """Every source file of the service and of the forests."""
    folders = (folder / package for package, folder in _ABOVE.items())
    return [path for folder in folders for path in sorted(folder.rglob("*.py"))]


def mutants_of(module: str) -> list[Mutant]:
    """All careless changes of a module."""
    tree = ast.parse(file_of(module).read_text())
    places = {node: place for place, node in enumerate(ast.walk(tree))}
    lines = _lines(tree)
    seen, mutants = Counter[str](), list[Mutant]()
    for scope, owner in _scopes(tree):
        nodes, roles = (
            _changed(owner, tree, is_whole=module.startswith(WHOLE)),
            _roles(owner),
        )
        reads_rows = module.startswith(READS_ROWS)
        changes = [(node, source) for node in nodes for source in _replacements(node)]
        changes += [
            (node, source)
            for node in nodes
            for source in _omissions(node, roles[node], reads_rows=reads_rows)
        ]
        for node, source in dict.fromkeys(changes):
            if isinstance(node, ast.expr) and source == ast.unparse(node):
                continue  # two equal arguments, swapped
            key = f"{module}:{scope} | {_words(node)} | {' '.join(source.split())}"
            seen[key] += 1
            key = key if seen[key] == 1 else f"{key} #{seen[key]}"
            mutants.append(
                Mutant(module, scope, key, Change(places[node], source), lines[node])
            )
    return mutants


def _lines(tree: ast.Module) -> dict[ast.AST, int]:
    """For each node, its own lines and those of the statement around it, without the
    statements inside that.
    """
    lines, pending = dict[ast.AST, int](), list[tuple[ast.AST, int]]([(tree, 0)])
    while pending:
        node, around = pending.pop()
        own = 0
        if isinstance(node, ast.stmt):
            cases = node.cases if isinstance(node, ast.Match) else [node]
            inside = getattr(cases[0], "body", [])
            end = (
                max(node.lineno, inside[0].lineno - 1)
                if inside
                else node.end_lineno or node.lineno
            )
            around = own = bits(range(node.lineno, end + 1))
        elif isinstance(node, ast.expr):
            own = bits(range(node.lineno, (node.end_lineno or node.lineno) + 1))
        lines[node] = own | around
        pending += [(child, around) for child in ast.iter_child_nodes(node)]
    return lines


def bits(lines: Iterable[int]) -> int:
    """One number with a bit for each line."""
    return sum(1 << line for line in set(lines))


def first(members: Any, default: object = None) -> Any:
    """The first value of a mapping, or member of a sequence: what is read by position
    in the place of a name.
    """
    return next(
        iter(members.values() if isinstance(members, Mapping) else members), default
    )


def until_many_rows(items: Iterable[Any]) -> Iterator[Any]:
    """The first of several tables, or numbers of row groups, with :data:`MOST_ROWS`
    rows: the change of a loop.
    """
    n_rows = 0
    for item in items:
        yield item
        members = item if isinstance(item, tuple) else (item,)
        n_rows += max(
            getattr(member, "num_rows", ROWS_OF_A_GROUP) for member in members
        )
        if n_rows >= MOST_ROWS:
            return


def tree_of(mutant: Mutant) -> ast.Module:
    """The tree of the module with the change."""
    tree = ast.parse(file_of(mutant.module).read_text())
    old = list(ast.walk(tree))[mutant.change.place]
    new: ast.AST = ast.parse(mutant.change.source).body[0]
    if isinstance(old, ast.expr):
        assert isinstance(new, ast.Expr)
        new = new.value
    for node in ast.walk(new):
        ast.copy_location(node, old)
    for parent in ast.walk(tree):
        for name, value in ast.iter_fields(parent):
            if value is old:
                setattr(parent, name, new)
            elif isinstance(value, list) and any(member is old for member in value):
                value[:] = [new if member is old else member for member in value]
    return ast.fix_missing_locations(tree)


def _acts(module: str) -> bool:
    return any(
        _is_sink(node) for node in ast.walk(ast.parse(file_of(module).read_text()))
    )


def _is_sink(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = _name(node.func)
    passed = [*node.args, *(keyword.value for keyword in node.keywords)]
    named = {keyword.arg for keyword in node.keywords}
    return (
        name in DRAWS
        # a mechanism that a function is given
        or (name == "select" and "inverse_scale" in named)
        or (name in EVENTS and isinstance(node.func, ast.Name))
        or (
            any(
                isinstance(value, ast.Name) and value.id in {"randomness", "paid"}
                for value in passed
            )
        )
        or any(
            isinstance(value, ast.Attribute) and value.attr in DRAWS for value in passed
        )
    )


def _name(function: ast.expr) -> str:
    return (
        function.id if isinstance(function, ast.Name) else getattr(function, "attr", "")
    )


def _scopes(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """Functions, methods and constants, with their qualified names."""
    for statement in tree.body:
        if isinstance(statement, ast.ClassDef):
            for member in statement.body:
                if isinstance(member, _Function):
                    yield f"{statement.name}.{member.name}", member
        elif isinstance(statement, _Function):
            yield statement.name, statement
        elif _is_type(statement):
            continue  # which only the type checker reads
        elif isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], ast.Name
        ):
            yield statement.targets[0].id, statement
        elif (
            isinstance(statement, ast.AnnAssign)
            and isinstance(statement.target, ast.Name)
            and statement.value
        ):
            yield statement.target.id, statement


def _is_type(statement: ast.stmt) -> bool:
    """Whether a statement names a type that nothing asks for when the program runs."""
    if isinstance(statement, ast.Assign):
        if "TypeVar(" in ast.unparse(statement.value):
            return True
        target, names_type = statement.targets[0], _is_union(statement.value)
    elif isinstance(statement, ast.AnnAssign):
        target = statement.target
        names_type = ast.unparse(statement.annotation) == "TypeAlias"
    else:
        return False
    asked = rf"isinstance\([^()]*, {ast.unparse(target)}\)"
    return names_type and not any(
        re.search(asked, path.read_text()) for path in _sources()
    )


def _is_union(value: ast.expr) -> bool:
    """Whether an expression is one of several types, and not a union of sets, whose
    names have no small letter.
    """
    if not isinstance(value, ast.BinOp) or not isinstance(value.op, ast.BitOr):
        return False
    return all(
        _is_union(side)
        or (
            isinstance(side, ast.Name)
            and not _is_object(side)
            and not side.id.isupper()
        )
        for side in (value.left, value.right)
    )


def _changed(owner: ast.stmt, tree: ast.Module, *, is_whole: bool) -> list[ast.AST]:
    """The nodes of a scope that are changed, without its docstring, annotations and
    messages of errors.
    """
    if not isinstance(owner, _Function):
        used = {
            scope
            for scope, _ in _scopes(tree)
            if scope in _used_names(tree, is_whole=is_whole)
        }
        target = owner.targets[0] if isinstance(owner, ast.Assign) else owner.target  # type: ignore[attr-defined]
        return list(_inside(owner.value)) if target.id in used else []  # type: ignore[attr-defined]
    if is_whole:
        roots: list[ast.AST] = list(owner.body)
    else:
        roots = _slice(
            owner, everything=owner.name in _used_names(tree, is_whole=False)
        )
    nodes = dict[ast.AST, None]()
    for root in roots:
        nodes |= dict.fromkeys(_inside(root))
    return list(nodes)


def _inside(root: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node that run, in order."""
    if isinstance(root, ast.Raise) or (
        isinstance(root, ast.Expr) and isinstance(root.value, ast.Constant)
    ):
        return
    yield root
    if isinstance(root, ast.JoinedStr):
        return
    for name, value in ast.iter_fields(root):
        if name in {
            "annotation",
            "returns",
            "decorator_list",
            "pattern",
            "args",
        } and not isinstance(root, ast.Call):
            continue
        for member in value if isinstance(value, list) else [value]:
            if isinstance(member, ast.match_case):
                yield from (
                    node for statement in member.body for node in _inside(statement)
                )
                yield from () if member.guard is None else _inside(member.guard)
            elif isinstance(member, ast.AST):
                yield from _inside(member)


def _slice(function: ast.AST, *, everything: bool) -> list[ast.AST]:
    """The expressions of a function from which the arguments of its draws and events
    follow.
    """
    parents = {
        child: parent
        for parent in ast.walk(function)
        for child in ast.iter_child_nodes(parent)
    }
    roots: list[ast.AST] = [node for node in ast.walk(function) if _is_sink(node)]
    if everything:
        roots += [node for node in ast.walk(function) if isinstance(node, ast.Return)]
    chosen = dict[ast.AST, None]()
    while roots:
        root = roots.pop()
        if root in chosen:
            continue
        chosen[root] = None
        names = {node.id for node in ast.walk(root) if isinstance(node, ast.Name)}
        for node in ast.walk(function):
            targets = getattr(node, "targets", [getattr(node, "target", None)])
            written = {
                name.id
                for target in targets
                if target
                for name in ast.walk(target)
                if isinstance(name, ast.Name)
            }
            if (
                isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)
                and written & names
            ):
                roots.append(node)
            elif isinstance(node, ast.For | ast.comprehension) and written & names:
                roots.append(node.iter)
        node = root
        while node in parents and node is not function:
            node = parents[node]
            if isinstance(node, ast.If | ast.While | ast.IfExp):
                roots.append(node.test)
            elif isinstance(node, ast.For):
                roots.append(node.iter)
            elif isinstance(node, ast.comprehension | ast.BinOp):
                roots.append(node)
            elif isinstance(
                node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp
            ):
                roots += [generator.iter for generator in node.generators]
                roots += [
                    test for generator in node.generators for test in generator.ifs
                ]
    return list(chosen)


_USED = dict[ast.Module, set[str]]()
"""Of the tree that was asked for last: a tree keeps its place in memory while it is
here, so that no other one is taken for it.
"""


def _used_names(tree: ast.Module, *, is_whole: bool) -> set[str]:
    """Constants and functions of a module that the sinks of the module read."""
    if tree in _USED:
        return _USED[tree]
    functions = {
        node.name: node for node in ast.walk(tree) if isinstance(node, _Function)
    }
    names = set[str]()
    pending: list[ast.AST] = (
        list(tree.body)
        if is_whole
        else [node for node in ast.walk(tree) if _is_sink(node)]
    )
    if not is_whole:
        for function in functions.values():
            if any(_is_sink(node) for node in ast.walk(function)):
                pending += _slice(function, everything=False)
    while pending:
        for node in ast.walk(pending.pop()):
            name = (
                node.id
                if isinstance(node, ast.Name)
                else node.attr
                if isinstance(node, ast.Attribute)
                else None
            )
            if name is not None and name not in names:
                names.add(name)
                if name in functions:
                    pending += _slice(functions[name], everything=True)
    _USED.clear()
    _USED[tree] = names
    return names


def _words(node: ast.AST) -> str:
    text = ast.unparse(node.test if isinstance(node, ast.If) else node)
    return " ".join(text.split())[:160]


def _replacements(node: ast.AST) -> Iterator[str]:  # noqa: C901 - one line for each kind of change
    """Sources that a careless hand might write in the place of a node."""
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            yield str(value + 1)
            if value > 0:
                yield str(value - 1)
            if value > 2:
                yield str(2 * value)
        case ast.BinOp(left, operator, right):
            first, second = ast.unparse(left), ast.unparse(right)
            match operator:
                case ast.Add() | ast.Sub():
                    # Noise is symmetric.
                    if not any(
                        isinstance(side, ast.Call) and _name(side.func) in NOISE
                        for side in (left, right)
                    ):
                        yield f"({first}) {'-' if isinstance(operator, ast.Add) else '+'} ({second})"
                    yield first
                case ast.Mult() | ast.BitOr() | ast.BitAnd():
                    yield first
                    yield second
                case (
                    ast.Div()
                    | ast.FloorDiv()
                    | ast.Pow()
                    | ast.LShift()
                    | ast.RShift()
                    | ast.Mod()
                ):
                    yield first
        case ast.Compare(left, [operator], [right]):
            for other in _OTHER_COMPARISONS[type(operator)]:
                yield ast.unparse(ast.Compare(left, [other()], [right]))
        case ast.BoolOp(operator, values):
            if isinstance(operator, ast.Or) and _is_empty(values[-1]):
                # What is left out in the place of nothing fails by its type, with
                # nothing done.
                yield ast.unparse(values[-1])
                return
            other_operator = ast.Or() if isinstance(operator, ast.And) else ast.And()
            yield ast.unparse(ast.BoolOp(other_operator, values))
            for index in range(len(values) if len(values) > 2 else 0):
                yield ast.unparse(
                    ast.BoolOp(operator, [*values[:index], *values[index + 1 :]])
                )
            if len(values) == 2:
                yield from map(ast.unparse, values)
        case ast.UnaryOp(ast.USub() | ast.Not(), operand):
            yield ast.unparse(operand)
        case ast.IfExp(_, body, other):
            yield from (ast.unparse(body), ast.unparse(other))
        case ast.If(body=[ast.Raise()], orelse=[]):
            yield "pass"
        case ast.AugAssign():
            yield "pass"
        case ast.Subscript(value, ast.Name() as index, ast.Load()) if (
            index.id.islower()
        ):
            yield f"{ast.unparse(value)}[0]"
        case ast.Call():
            yield from _calls(node)


def _calls(call: ast.Call) -> Iterator[str]:  # noqa: C901 - as above
    name, function = _name(call.func), call.func
    places: list[tuple[int | str, ast.expr]] = [
        *(
            pair
            for pair in enumerate(call.args)
            if not isinstance(pair[1], ast.Starred)
        ),
        *(
            (keyword.arg, keyword.value)
            for keyword in call.keywords
            if keyword.arg is not None
        ),
    ]
    if name in {"min", "max"} and (call.args or isinstance(function, ast.Attribute)):
        changed, other = "max" if name == "min" else "min", copy.deepcopy(call)
        other.func = (
            ast.Attribute(function.value, changed)
            if isinstance(function, ast.Attribute)
            else ast.Name(changed)
        )
        yield ast.unparse(other)
    elif name == "range":
        end = len(call.args) - 1 if len(call.args) < 3 else 1
        yield from _near(call, end, call.args[end])
    elif name in DRAWS:
        # the first draw serves all
        yield f"globals().setdefault({ast.unparse(call)[:60]!r}, {ast.unparse(call)})"
        for place, value in places:
            if place in {"inverse_scale", "utilities"} or (
                place == 0 and name not in NOISE
            ):
                yield _with(call, place, f"2 * ({ast.unparse(value)})")
            elif place == "scale_bits":
                yield from _near(call, place, value)
    elif name in EVENTS:
        for place, value in places:
            if place in {"times", "coordinates", "max_candidates"} or (
                name == "Part" and place == 0
            ):
                yield from _near(call, place, value)
            elif isinstance(place, str) and place not in {"over", "adjacency"}:
                yield _with(call, place, f"2 * ({ast.unparse(value)})")
                yield _with(call, place, f"({ast.unparse(value)}) / 2")
        if name == "Sequential" and len(call.args) == 1:
            events = "__import__('grovekeeper_forests.privacy.events', fromlist=['x'])"
            yield f"{events}.Parallel('trees', {ast.unparse(call.args[0])})"
    elif (
        name not in _ORDERLESS
        and len(call.args) >= 2
        and ast.unparse(call.args[0]) != "session"
    ):
        other = copy.deepcopy(call)
        other.args[:2] = reversed(other.args[:2])
        yield ast.unparse(other)


def _is_empty(value: ast.expr) -> bool:
    return (
        isinstance(value, ast.Dict | ast.Tuple | ast.List)
        and not list(ast.iter_child_nodes(value))[:-1]
    )


def _near(call: ast.Call, place: int | str, count: ast.expr) -> Iterator[str]:
    """The call with one less and one more at a place."""
    yield _with(call, place, f"({ast.unparse(count)}) - 1")
    yield _with(call, place, f"({ast.unparse(count)}) + 1")


def _with(call: ast.Call, place: int | str, source: str) -> str:
    """The call with another argument at a place or for a keyword."""
    other, value = copy.deepcopy(call), ast.parse(source, mode="eval").body
    if isinstance(place, int):
        other.args[place] = value
    else:
        next(
            keyword for keyword in other.keywords if keyword.arg == place
        ).value = value
    return ast.unparse(other)


KEY, ITEM, LOOP, FILTER = (
    "part of a key",
    "part of a tuple that is passed",
    "iteration",
    "condition of a comprehension",
)
_FIRST: Final = "__import__('tests.privacy.mutations', fromlist=['x']).first"
_UNTIL_MANY_ROWS: Final = (
    "__import__('tests.privacy.mutations', fromlist=['x']).until_many_rows"
)
_LOOKUPS: Final = {"get", "pop", "setdefault", "add", "discard"}
_CLAUSES: Final = {"where", "filter", "order_by", "group_by"}
_ORDERLESS: Final = {"where", "filter", "and_", "or_", "group_by", "isdisjoint"} | {
    "isinstance", "partial", "replace", "zip", "getattr", "setdefault",
}  # fmt: skip
"""Calls whose first two arguments are not swapped: conditions mean the same in any
order, and the others fail at once, as any call with something in the place of its
session.
"""

_CHECKS: Final = ("require", "_require", "check", "_check", "verify", "_verify")
_DECLARED: Final = ("partition", "column", "schema", "feature", "scope")
"""Loops over these go over what an owner declared, and not over rows."""

_SIZES: Final = {"n_rows", "num_rows", "num_row_groups"}


def _roles(owner: ast.stmt) -> dict[ast.AST, set[str]]:  # noqa: C901 - one line for each kind of node
    """What nodes of a scope are to the nodes above them."""
    roles = defaultdict[ast.AST, set[str]](set)
    for node in ast.walk(owner):
        keys: list[ast.expr] = []
        match node:
            case ast.For(iter=iterated):
                roles[iterated].add(LOOP)
            case ast.comprehension(iter=iterated, ifs=conditions):
                roles[iterated].add(LOOP)
                for condition in conditions:
                    roles[condition].add(FILTER)
            case ast.Subscript(slice=key):
                keys = [key]
            case ast.Dict(keys=dict_keys):
                keys = [key for key in dict_keys if key is not None]
            case ast.DictComp(key=key) | ast.SetComp(elt=key) | ast.Lambda(body=key):
                keys = [key]
            case ast.Compare(left, [ast.In() | ast.NotIn()], _):
                keys = [left]
            case ast.Call(ast.Attribute(attr=attribute), [key, *_]) if (
                attribute in _LOOKUPS
            ):
                keys = [key]
            case ast.Assign([ast.Name(name)], key) if _names_key(name):
                keys = [key]
            case ast.Return(key) if (
                key is not None
                and isinstance(owner, _Function)
                and _names_key(owner.name)
            ):
                keys = [key]
        if isinstance(node, ast.Call):
            for argument in node.args:
                roles[argument].add(ITEM)
        for key in keys:
            roles[key].add(KEY)
    return roles


def _names_key(name: str) -> bool:
    return any(word in name for word in ("key", "kind", "digest"))


def _omissions(node: ast.AST, roles: set[str], *, reads_rows: bool) -> Iterator[str]:  # noqa: C901 - as above
    """Sources in the place of a node that leave out a part of what belongs together."""
    text = ast.unparse(node) if isinstance(node, ast.expr) else ""
    if FILTER in roles:
        yield "True"
    if LOOP in roles:
        yield f"{_members(node)}[:-1]"
        yield f"{_members(node)}[:1]"
        if reads_rows and not any(word in text for word in _DECLARED):
            yield f"{_UNTIL_MANY_ROWS}({text})"
    yield from _of_one(node)
    match node:
        case ast.Tuple(members, ast.Load()) if len(members) > 1 and not any(
            isinstance(m, ast.Slice) or ast.unparse(m) == "..." for m in members
        ):
            yield from _parts_of_key(members, roles)
        case ast.JoinedStr(values):
            for value in values:
                if isinstance(value, ast.FormattedValue) and len(values) > 1:
                    yield ast.unparse(
                        ast.JoinedStr([other for other in values if other is not value])
                    )
        case ast.Dict(keys, values) if len(values) > 1:
            for index in range(len(values)):
                yield ast.unparse(
                    ast.Dict(_without(keys, index), _without(values, index))
                )
        case ast.Compare(left, operators, others):
            yield from _fewer_comparisons(left, operators, others)
        case ast.If(body=[*_, ast.Raise()]) if len(node.body) > 1 or node.orelse:
            yield "pass"
        case ast.Expr(ast.Call() as call) if _name(call.func).startswith(_CHECKS):
            yield "pass"
        case ast.Subscript(value, ast.Name() | ast.Attribute(), ast.Load()) if (
            _is_object(value) and not _is_of_one(value)
        ):
            yield f"{_FIRST}({ast.unparse(value)})"
        case ast.Attribute(attr=attribute, ctx=ast.Load()) if (
            reads_rows and attribute in _SIZES
        ):
            yield f"min({text}, {MOST_ROWS})"
        case ast.Name(id=name, ctx=ast.Load()) if reads_rows and name in _SIZES:
            yield f"min({text}, {MOST_ROWS})"
        case ast.Call():
            yield from _calls_with_less(node, reads_rows=reads_rows)


def _of_one(node: ast.AST) -> Iterator[str]:
    """Where something is done to each of several, the first alone; and where something
    is copied, the original.
    """
    match node:
        case ast.Call(
            ast.Name("list" | "tuple" | "set" | "frozenset" | "dict" | "sorted"),
            [members],
        ) | ast.Call(
            ast.Attribute(attr="in_" | "extend" | "update" | "union"), [members]
        ) if not _is_bound_later(members):
            yield _with(node, 0, f"{_members(members)}[:1]")
    match node:
        case ast.Call(ast.Attribute(original, "copy" | "deepcopy"), []):
            yield ast.unparse(original)
        case ast.Call(
            ast.Attribute(attr="copy" | "deepcopy") | ast.Name("copy" | "deepcopy"),
            [original],
        ):
            yield ast.unparse(original)
        case ast.Call(
            ast.Name("list" | "set" | "dict"),
            [ast.Name() | ast.Attribute() as original],
            [],
        ):
            yield ast.unparse(original)
        case ast.List([ast.Starred(original)], ast.Load()) | ast.Dict(
            [None], [original]
        ):
            yield ast.unparse(original)


def _is_bound_later(members: ast.AST) -> bool:
    return isinstance(members, ast.Call) and _name(members.func) == "bindparam"


def _members(several: ast.AST) -> str:
    """The list of the members of an expression."""
    return ast.unparse(ast.List([ast.Starred(several)]))  # type: ignore[arg-type]  # an expression by its role


def _parts_of_key(members: list[ast.expr], roles: set[str]) -> Iterator[str]:
    for index, member in enumerate(members):
        if KEY in roles and not isinstance(member, ast.Starred):
            yield ast.unparse(
                ast.Tuple(
                    [*members[:index], ast.Constant(None), *members[index + 1 :]],
                    ast.Load(),
                )
            )
        elif KEY in roles or ITEM in roles:
            yield ast.unparse(ast.Tuple(_without(members, index), ast.Load()))


def _fewer_comparisons(
    left: ast.expr, operators: list[ast.cmpop], others: list[ast.expr]
) -> Iterator[str]:
    """One comparison less of a chain, or of two tuples that are compared part by part."""
    if len(operators) > 1:
        yield ast.unparse(ast.Compare(left, operators[:-1], others[:-1]))
        yield ast.unparse(ast.Compare(others[0], operators[1:], others[1:]))
    other = others[0]
    if (
        isinstance(left, ast.Tuple)
        and isinstance(other, ast.Tuple)
        and len(left.elts) == len(other.elts)
    ):
        for index in range(len(left.elts)):
            fewer = (
                ast.Tuple(_without(side.elts, index), ast.Load())
                for side in (left, other)
            )
            yield ast.unparse(ast.Compare(next(fewer), operators, [next(fewer)]))


def _calls_with_less(call: ast.Call, *, reads_rows: bool) -> Iterator[str]:
    name, function, is_method = (
        _name(call.func),
        call.func,
        isinstance(call.func, ast.Attribute),
    )
    if name == "sum":
        yield _renamed(call, "max")
    elif name in {"min", "max"} and len(call.args) == 2 and not is_method:
        yield from map(ast.unparse, call.args)
    elif name == "len" and reads_rows:
        yield f"min({ast.unparse(call)}, {MOST_ROWS})"
    elif name == "get" and is_method and call.args and not _is_of_one(function.value):  # type: ignore[attr-defined]
        default = ast.unparse(call.args[1]) if len(call.args) > 1 else "None"
        yield f"{_FIRST}({ast.unparse(function.value)}, {default})"  # type: ignore[attr-defined]
    elif name in _CLAUSES and is_method:
        for index in range(len(call.args)):
            fewer = ast.Call(function, _without(call.args, index), call.keywords)
            yield ast.unparse(fewer if fewer.args else function.value)  # type: ignore[attr-defined]
    if name in {
        "isinstance",
        "getattr",
        "zip",
        "range",
        "sum",
        "min",
        "max",
        "get",
        *_CLAUSES,
        *DRAWS,
        *EVENTS,
    }:
        return
    if is_method and ast.unparse(function).startswith("_log."):
        return
    fewest, without_default = _signatures().get(name, (0, set()))
    if fewest < len(call.args) > 1 and not isinstance(call.args[-1], ast.Starred):
        yield ast.unparse(ast.Call(function, call.args[:-1], call.keywords))
    for index, keyword in enumerate(call.keywords):
        if keyword.arg is not None and keyword.arg not in without_default:
            yield ast.unparse(
                ast.Call(function, call.args, _without(call.keywords, index))
            )


@cache
def _signatures() -> dict[str, tuple[int, set[str]]]:
    """For each name of a function or class of the application: the fewest arguments by
    position, what has no default.

    Of several that share a name, and of a class without an initialiser of its own, the
    arguments that all of them need.
    """
    signatures = dict[str, tuple[int, set[str]]]()
    for path in _sources():
        for name, fewest, needed in _needed_arguments(ast.parse(path.read_text())):
            others = signatures.get(name, (fewest, needed))
            signatures[name] = min(fewest, others[0]), needed & others[1]
    return signatures


def _needed_arguments(tree: ast.Module) -> Iterator[tuple[str, int, set[str]]]:
    for node in ast.walk(tree):
        if isinstance(node, _Function):
            names = [
                argument.arg for argument in [*node.args.posonlyargs, *node.args.args]
            ]
            names = names[1:] if names[:1] in (["self"], ["cls"]) else names
            by_position = names[: len(names) - len(node.args.defaults)]
            pairs = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
            yield (
                node.name,
                len(by_position),
                {*by_position, *(name.arg for name, value in pairs if value is None)},
            )
        elif isinstance(node, ast.ClassDef):
            members = [
                member for member in node.body if isinstance(member, ast.AnnAssign)
            ]
            fields = [
                ast.unparse(member.target) for member in members if member.value is None
            ]
            has_bases = any(
                ast.unparse(base) not in {"NamedTuple", "Protocol"}
                for base in node.bases
            )
            yield node.name, 0 if has_bases else len(fields), set(fields)


def _renamed(call: ast.Call, name: str) -> str:
    """The call of another function, or of another method of the same object; the
    largest of nothing is 0.
    """
    other = copy.deepcopy(call)
    if isinstance(other.func, ast.Attribute):
        other.func.attr = name
        return ast.unparse(other)
    start = other.args.pop() if len(other.args) > 1 else ast.Constant(0)
    return ast.unparse(
        ast.Call(ast.Name(name), other.args, [ast.keyword("default", start)])
    )


def _is_object(value: ast.expr) -> bool:
    """Whether an expression is an object and not a type."""
    return not (
        isinstance(value, ast.Name)
        and (value.id in dir(builtins) or value.id[0].isupper())
    )


def _is_of_one(value: ast.expr) -> bool:
    """Whether a function is asked about a list of one, so that the first answer is the
    only one.
    """
    lists = value.args if isinstance(value, ast.Call) else []
    return any(
        isinstance(a, ast.List)
        and len(a.elts) == 1
        and not isinstance(a.elts[0], ast.Starred)
        for a in lists
    )


_Member = TypeVar("_Member")


def _without(members: Sequence[_Member], index: int) -> list[_Member]:
    return [*members[:index], *members[index + 1 :]]
