"""Draws the pictures of the dashboard as SVG. A picture holds nothing that the words
beside it do not say.
"""

from collections.abc import Collection, Sequence
from decimal import ROUND_CEILING, Decimal
from math import ceil

from markupsafe import Markup

from app.api.addresses import base
from app.api.pages import words
from app.core import stamps
from app.services.ledger.spend_history import Charge, Spend
from app.wire.evaluations import AccuracyOut, MajorityOut
from app.wire.training import RecoveredOut
from grovekeeper_common import odds_words
from grovekeeper_common.json_types import JsonMapping
from grovekeeper_common.number_words import share_in_words
from grovekeeper_forests.amounts import SYMBOLS

_WIDTH = 600
_PLOT_HEIGHT = 180
_SCALE_WIDTH = 320
_ROW_HEIGHT = 22
_NARROWEST = Decimal("0.3")


def budget_bar(account: JsonMapping, label: str, requested: str = "0") -> Markup:
    """Draw parts of a cap from the left: charged solid, reserved hatched, requested
    outlined; and a tick at the cap. A request that does not fit passes the tick.

    Args:
        label: the bar in words, for readers who do not see it.
        requested: what a request asks for.
    """
    cap = Decimal(account["cap"])
    amounts = {
        "charged": Decimal(account["charged"]),
        "reserved": Decimal(account["reserved"]),
        "asked": Decimal(requested),
    }
    total = sum(amounts.values())
    # never 0, which the parts are divided by
    whole = max(cap, total, Decimal(1).scaleb(-30))
    parts, start = [], Decimal(0)
    if total > cap:
        parts.append(_part_of_bar("track", Decimal(0), cap / whole))
        parts.append(_part_of_bar("excess", cap / whole, 1 - cap / whole))
    for kind, amount in amounts.items():
        if amount:
            parts.append(_part_of_bar(kind, start / whole, amount / whole))
        start += amount
    if total > cap:
        tick = '<line class="cap" x1="{x}%" x2="{x}%" y1="0" y2="100%"/>'
        parts.append(_svg(tick, x=100 * cap / whole))
    return _svg(
        '<svg class="bar{over}" role="img" aria-label="{label}">{parts}</svg>',
        over=" over" if total > cap else "",
        label=label,
        parts=parts,
    )


def _part_of_bar(kind: str, start: Decimal, share: Decimal) -> Markup:
    """A part of the bar; shares are of its length. ``#hatch`` stands in
    ``icons.html``.
    """
    hatched = Markup(' fill="url(#hatch)"') if kind == "reserved" else ""
    return _svg(
        '<rect class="{}" x="{}%" width="{}%" height="100%"{}/>',
        kind,
        100 * start,
        max(100 * share, _NARROWEST),
        hatched,
    )


def meter(share: float, label: str) -> Markup:
    """Draw a share of a whole as a bar."""
    return _svg(
        '<svg class="meter grey" role="img" aria-label="{}"><rect width="{}%" height="100%"/></svg>',
        label,
        Decimal(100 * share),
    )


def spend(spent: Spend, balance: JsonMapping, now: str) -> Markup | None:
    """Draw what the tightest cell has charged over time, from 0 to the cap: a step for
    each charge, a dot that links to its ledger entry, and what is reserved now.

    Args:
        now: the end of the axis of time.

    Returns:
        ``None`` without a charge that covers the tightest cell.
    """
    steps = [charge for charge in spent.charges if charge.covers]
    if not steps:
        return None
    cap = Decimal(balance["cap"])
    reserved = Decimal(balance["reserved"])
    highest = Decimal(steps[-1].total) + reserved
    # never 0, which the heights are divided by; a lowered cap may lie below what is
    # spent
    whole = max(cap, highest, Decimal(1).scaleb(-30)) * Decimal("1.08")
    start, end = stamps.from_text(steps[0].at), stamps.from_text(now)
    span = max((end - start).total_seconds(), 1.0)
    level = Decimal(spent.before)
    since = Decimal(0)
    parts = []
    dots = []
    for charge in steps:
        elapsed = (stamps.from_text(charge.at) - start).total_seconds()
        at = min(Decimal(elapsed) / Decimal(span), Decimal(1))
        total = Decimal(charge.total)
        parts += _stair(since, at, level / whole, total / whole)
        dots.append(_charge_dot(charge, balance, at, total / whole))
        level, since = total, at
    parts += _stair(since, Decimal(1), level / whole, level / whole)
    if reserved:
        hatched = '<rect x="98.4%" y="{}" width="1.6%" height="{}" fill="url(#hatch)"/>'
        top = _height((level + reserved) / whole)
        parts.append(_svg(hatched, top, _height(level / whole) - top))
    marks = [Decimal(0), cap / 2, cap]
    symbol = SYMBOLS[balance["unit"]]
    texts = ["0", words.plain(cap / 2), f"{balance['cap']} {symbol}"]
    scale = '<text x="0" y="{}">{}</text>'
    lines, axis = [], []
    for kind, mark, text in zip(("axis", "grid", "cap"), marks, texts, strict=True):
        share = mark / whole
        lines.append(_level(kind, share))
        axis.append(_svg(scale, _height(share) + 4, text))
    return _svg(
        '<div class="chart"><svg class="plot" height="{h}" aria-hidden="true">{axis}</svg>'
        '<svg class="plot" height="{h}" role="group" aria-label="{label}">{lines}{parts}{dots}{times}</svg></div>',
        h=_PLOT_HEIGHT + 24,
        axis=axis,
        label=f"{len(steps)} charges, oldest first; each is a link to its entry",
        lines=lines,
        parts=parts,
        dots=dots,
        times=_times(steps[0].at, now),
    )


def _stair(start: Decimal, end: Decimal, level: Decimal, then: Decimal) -> list[Markup]:
    """A level from one time to another, the area below it, and the step at its end."""
    y = _height(level)
    place = {"x": 100 * start, "to": 100 * end}
    return [
        _svg(
            '<rect class="softer" x="{x}%" y="{y}" width="{w}%" height="{h}"/>',
            y=y,
            w=100 * (end - start),
            h=_PLOT_HEIGHT - _height(level),
            **place,
        ),
        _svg(
            '<line class="line" x1="{x}%" x2="{to}%" y1="{y}" y2="{y}"/>', y=y, **place
        ),
        _svg(
            '<line class="line" x1="{to}%" x2="{to}%" y1="{y}" y2="{z}"/>',
            y=y,
            z=_height(then),
            **place,
        ),
    ]


def _charge_dot(
    charge: Charge, balance: JsonMapping, at: Decimal, level: Decimal
) -> Markup:
    symbol = SYMBOLS[balance["unit"]]
    who = words.who(charge.by, charge.by_name)
    minute = words.minute(charge.at)
    mechanism = charge.job_id or charge.description
    return _svg(
        '<a href="{link}" aria-label="{text}" data-words="{text}"><title>{text}</title>'
        '<circle class="hit" cx="{x}%" cy="{y}" r="10"/><circle class="dot" cx="{x}%" cy="{y}" r="4"/></a>',
        link=f"{base()}/ui/ledger/{balance['account']}/entries/{charge.sequence}",
        text=f"{charge.amount} {symbol} charged, {charge.total} {symbol} in all: {mechanism}, {who}, {minute}",
        x=100 * at,
        y=_height(level),
    )


def _level(kind: str, share: Decimal) -> Markup:
    """A line across the plot, at a share of its height."""
    line = '<line class="{}" x1="0" x2="100%" y1="{y}" y2="{y}"/>'
    return _svg(line, kind, y=_height(share))


def _times(first: str, last: str) -> Markup:
    """The ends of the axis of time: days, or hours of one day."""
    named = words.minute if first[:10] == last[:10] else words.day
    return _svg(
        '<text x="0" y="{y}">{}</text><text class="end" x="100%" y="{y}">{}</text>',
        named(first),
        named(last),
        y=_PLOT_HEIGHT + 18,
    )


def _height(share: Decimal) -> Decimal:
    """The place of a share of the plot's height, in pixels from its upper edge."""
    return _PLOT_HEIGHT * (1 - share)


def accuracy(accuracy: AccuracyOut, majority: MajorityOut | None) -> Markup:
    """Draw a noisy accuracy as a dot between its intervals, from 0 to 100 %, with a
    mark at the largest class.
    """
    ends = [
        ("wide", accuracy.population_interval.low, accuracy.population_interval.high),
        ("interval", accuracy.interval.low, accuracy.interval.high),
    ]
    bar = '<rect class="{}" x="{}" y="8" width="{}" height="16"/>'
    bars = []
    for kind, low, high in ends:
        width = max(_across(high) - _across(low), Decimal(1))
        bars.append(_svg(bar, kind, _across(low), width))
    mark = words = ""
    if majority is not None:
        mark = _vertical("cap", _across(majority.share), 2, 30)
        words = f"; the largest class alone {share_in_words(majority.share)}"
    dot, estimate = "", "no estimate"
    if accuracy.estimate is not None:
        dot = _vertical("estimate", _across(accuracy.estimate), 4, 28)
        estimate = share_in_words(accuracy.estimate)
    return _svg(
        '<svg class="plot accuracy" viewBox="0 0 {w} 32" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<rect class="empty" y="12" width="{w}" height="8"/>{bars}{mark}{dot}</svg>',
        w=_WIDTH,
        label=f"Accuracy {estimate}, between {share_in_words(accuracy.interval.low)} and "
        f"{share_in_words(accuracy.interval.high)}{words}",
        bars=bars,
        mark=mark,
        dot=dot,
    )


def roc(histogram: Sequence[Sequence[float]]) -> Markup:
    """Draw the ROC curve of noisy counts of scores, clamped at 0: of the first class,
    then of the second.
    """
    first, second = ([max(count, 0.0) for count in counts] for counts in histogram)
    n_first, n_second = sum(first) or 1.0, sum(second) or 1.0
    mistaken = detected = 0.0
    points = ["0,200"]
    for wrong, right in zip(reversed(first), reversed(second), strict=True):
        mistaken, detected = mistaken + wrong, detected + right
        x, y = mistaken / n_first * 200, detected / n_second * 200
        points.append(f"{x:.1f},{200 - y:.1f}")
    return _svg(
        '<svg class="roc" viewBox="-2 -2 204 204" role="img" aria-label="ROC curve from noisy counts">'
        '<rect class="frame" width="200" height="200"/><line class="axis" x1="0" y1="200" x2="200" y2="0"/>'
        '<polyline class="curve" points="{}"/></svg>',
        " ".join(points),
    )


def estimate(
    number: tuple[float, float | None, float],
    scale: tuple[float, float],
    *,
    from_zero: bool,
    label: str,
) -> Markup:
    """Draw a noisy number with its interval, on the scale of its neighbours.

    Args:
        number: the lower end of its interval, the number, and the upper end.
        scale: the smallest and the largest number of the scale.
        from_zero: whether a bar from zero to the number says how large it is; the scale
            then has zero.
    """
    smallest, largest = scale
    span = (largest - smallest) or 1.0

    def place(value: float) -> Decimal:
        return _across((value - smallest) / span)

    start, value, stop = number
    low, high = place(start), place(stop)
    parts = [
        _svg('<line class="whisker" x1="{}" x2="{}" y1="10" y2="10"/>', low, high),
        _vertical("whisker", low, 5, 15),
        _vertical("whisker", high, 5, 15),
    ]
    if value is not None and from_zero:
        zero, end = place(0.0), place(value)
        amount = '<rect class="amount" x="{}" y="1" width="{}" height="18"/>'
        width = abs(end - zero)
        parts.insert(0, _svg(amount, min(zero, end), width))
        parts.append(_vertical("axis", zero, 0, 20))
    elif value is not None:
        parts.append(_vertical("estimate", place(value), 3, 17))
    return _svg(
        '<svg class="plot interval-row" viewBox="-2 0 604 20" preserveAspectRatio="none" role="img"'
        ' aria-label="{label}">{parts}</svg>',
        label=label,
        parts=parts,
    )


def _across(share: float) -> Decimal:
    return Decimal(share) * _WIDTH


def _vertical(kind: str, x: Decimal, top: int, bottom: int) -> Markup:
    return _svg(
        '<line class="{}" x1="{x}" x2="{x}" y1="{}" y2="{}"/>', kind, top, bottom, x=x
    )


def odds_scale(chances: Collection[str]) -> Markup:
    """Draw a scale from a coin (50 %) to certainty (100 %) with a dot at the first
    chance, open dots at the others, and marks at ε = 0.1, 1 and 3.
    """
    percent = ", ".join(map(odds_words.percent, chances))
    mark = '<line class="axis" x1="{x}%" x2="{x}%" y1="4" y2="12"/><text class="middle" x="{x}%" y="28">ε = {e}</text>'
    # the odds are 1 / (1 + exp(−ε))
    odds_of_epsilon = (("0.1", "0.525"), ("1", "0.7311"), ("3", "0.9526"))
    marks = [_svg(mark, x=_place(odds), e=epsilon) for epsilon, odds in odds_of_epsilon]
    dot = '<circle class="{}" cx="{}%" cy="8" r="5"/>'
    kinds = ["dot", *["open"] * (len(chances) - 1)]
    dots = [
        _svg(dot, kind, _place(chance))
        for kind, chance in zip(kinds, chances, strict=True)
    ]
    return _svg(
        '<svg class="plot" height="34" role="img" aria-label="{label}">'
        '<line class="axis" x1="0" x2="100%" y1="8" y2="8"/>{marks}{dots}</svg>',
        label=f"Right guesses: {percent}, on a scale from 50 % to 100 %",
        marks=marks,
        # the first dot lies above the others
        dots=dots[::-1],
    )


def recovered_shares(
    tables: Sequence[RecoveredOut], band: tuple[float, float, float], *, label: str
) -> Markup:
    """Draw the recovered share of every table as a dot with its name, and behind them
    the quartiles and the median.

    Args:
        tables: name and share of each table; 0 is the largest class, 1 a forest without
            privacy.
        band: lower quartile, median and upper quartile.
    """
    height = len(tables) * _ROW_HEIGHT + 24
    low, middle, high = (_share_place(share) for share in band)
    foot = height - 20
    row = '<text x="0" y="{text_y}">{name}</text><circle cx="{x}" cy="{y}" r="5"/>'
    rows = []
    for index, recovered in enumerate(tables):
        top = index * _ROW_HEIGHT
        x = _share_place(recovered.share)
        rows.append(_svg(row, text_y=top + 15, y=top + 11, x=x, name=recovered.table))
    mark = '<text class="at" x="{x}" y="{y}">{percent} %</text>'
    marks = []
    for percent in (0, 50, 100):
        x = _share_place(percent / 100)
        marks.append(_svg(mark, x=x, y=height - 4, percent=percent))
    return _svg(
        '<svg class="shares" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        '<rect class="band" x="{x}" y="0" width="{band}" height="{foot}"/>'
        '<line class="middle" x1="{middle}" x2="{middle}" y1="0" y2="{foot}"/>'
        '<line class="axis" x1="{left}" x2="{right}" y1="{foot}" y2="{foot}"/>{rows}{marks}</svg>',
        w=_SCALE_WIDTH,
        h=height,
        label=label,
        x=low,
        band=max(high - low, Decimal(2)),
        middle=middle,
        foot=foot,
        left=_share_place(0),
        right=_share_place(1),
        rows=rows,
        marks=marks,
    )


def share_class(left: str, cap: str) -> str:
    """The class of a cell of a heat map, by the share of the cap that is used:
    ``heat-0`` to ``heat-4``.
    """
    share = 1 - Decimal(left) / (Decimal(cap) or Decimal(1))
    return f"heat-{(share * 4).to_integral_value(ROUND_CEILING):f}"


def part_class(count: float, whole: float) -> str:
    """The class of a cell of a heat map, by its part of its row: ``heat-0`` to
    ``heat-3``. A noisy count may lie outside its row.
    """
    # Noise makes counts negative, and larger than their row.
    step = ceil(count / whole * 3)
    return f"heat-{min(max(step, 0), 3)}"


def _place(odds: str) -> Decimal:
    """The place of odds on a scale from 50 % (0) to 100 % (100)."""
    return (Decimal(odds) - Decimal("0.5")) * 200


def _share_place(share: float) -> Decimal:
    """The place of a recovered share. Shares beyond 0 and 1 occur by chance and lie a
    little beyond the axis.
    """
    return 120 + Decimal(min(max(share, -0.05), 1.05)) * 180


def _svg(drawing: str, *parts: object, **named: object) -> Markup:
    """A drawing with its parts."""
    shown = {name: _shown(part) for name, part in named.items()}
    return Markup(drawing).format(*map(_shown, parts), **shown)  # noqa: S704  # a constant of this module


def _shown(part: object) -> object:
    """A part as a drawing has it: of a list all parts, of a length two places."""
    if isinstance(part, list):
        return Markup("").join(part)
    if isinstance(part, Decimal):
        return f"{part.quantize(Decimal('0.01')):f}"
    return part
