"""Draws a tree of a model, as text and as SVG, from the answer of the API."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import share_in_words

_LINE_HEIGHT = 22
_INDENT = 28
_MARGIN = 16
_LETTER_WIDTH = 9
_BAR_WIDTH = 60
_DIGITS = 4


@dataclass(frozen=True)
class _Line:
    """A node of a tree.

    Attributes:
        level: number of splits above the node.
        parent: the line of the split above it; the node itself at the root.
        is_last: for each split above the node, whether the node is on its second side.
        words: the answer that leads here, then what the node asks or answers.
        share: of the class that a leaf answers, if it has one.
    """

    level: int
    parent: int
    is_last: Sequence[bool]
    words: str
    share: float | None


def as_text(tree: JsonMapping) -> str:
    """A tree in lines, each below the split that leads to it.

    Args:
        tree: answer of ``GET /models/{id}/trees/{number}``.
    """
    texts = []
    for line in _lines(tree):
        stems = ["   " if is_last else "│  " for is_last in line.is_last[:-1]]
        if line.is_last:
            stems.append("└─ " if line.is_last[-1] else "├─ ")
        texts.append("".join(stems) + line.words)
    return "\n".join(texts)


def as_svg(tree: JsonMapping) -> str:
    """A tree as an SVG element in the colours of the text around it; leaves have a bar
    for the share of their class.

    Args:
        tree: answer of ``GET /models/{id}/trees/{number}``.
    """
    lines = list(_lines(tree))
    parts = []
    width = 0.0
    for index, line in enumerate(lines):
        x = _MARGIN + _INDENT * line.level
        y = _MARGIN + _LINE_HEIGHT * index
        if line.level:
            above = _MARGIN + _LINE_HEIGHT * line.parent + 8
            parts.append(
                f'<path d="M{x - _INDENT + 8} {above}V{y}H{x - 4}" fill="none" '
                'stroke="currentColor" stroke-opacity="0.4"/>'
            )
        start = x
        if line.share is not None:
            start += _BAR_WIDTH + 8
            parts.append(_bar(x, y, line.share))
        parts.append(
            f'<text x="{start}" y="{y + 4.5}" fill="currentColor">{escape(line.words)}</text>'
        )
        width = max(width, start + _LETTER_WIDTH * len(line.words))
    height = _MARGIN + _LINE_HEIGHT * len(lines)
    return (
        f'<svg class="tree" role="img" aria-label="Tree {tree["tree"]}" width="{width:.0f}" height="{height}" '
        f'font-family="inherit" font-size="13">{"".join(parts)}</svg>'
    )


def _bar(x: float, y: float, share: float) -> str:
    frame = f'x="{x}" y="{y - 5}" height="10"'
    return (
        f'<rect {frame} width="{_BAR_WIDTH}" fill="none" stroke="currentColor" stroke-opacity="0.4"/>'
        f'<rect {frame} width="{_BAR_WIDTH * share:.1f}" fill="currentColor" fill-opacity="0.55"/>'
    )


def _lines(tree: JsonMapping) -> Iterator[_Line]:
    """The nodes of a tree, each with the answer that leads to it."""
    nodes = tree["nodes"]
    n_lines = 0
    pending: list[tuple[int, int, tuple[bool, ...], str]] = [(0, 0, (), "")]
    while pending:
        place, parent, is_last, answer = pending.pop()
        node = nodes[place]
        yield _Line(
            level=len(is_last),
            parent=parent,
            is_last=is_last,
            words=answer + _words(node),
            share=node["share"],
        )
        if node["test"] is not None:
            pending.append((node["no"], n_lines, (*is_last, True), "no: "))
            pending.append((node["yes"], n_lines, (*is_last, False), "yes: "))
        n_lines += 1


def _words(node: JsonMapping) -> str:
    if node["test"] is not None:
        return f"{node['test']}?"
    if node["number"] is not None:
        words = _in_digits(node["number"])
    else:
        words = str(node["label"])
    if node["share"] is not None:
        words += f" {share_in_words(node['share'])}"
    if node["n_leaves"] > 1:
        words += f", over {node['n_leaves']} leaves"
    return words


def _in_digits(number: float) -> str:
    rounded = float(f"{number:.{_DIGITS}g}")
    return f"{rounded:,.15g}".replace("-", "−")
