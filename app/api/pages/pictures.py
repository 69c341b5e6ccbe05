"""Draws the pictures of the dashboard as SVG. A picture holds nothing that the words
beside it do not say.
"""

from collections.abc import Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from math import ceil
from typing import Any

from markupsafe import Markup

from app.api.addresses import base
from app.api.pages import words
from app.services.ledger.spend_history import Spend
from app.wire.evaluations import AccuracyOut, MajorityOut
from app.wire.statistics import EstimateOut
from app.wire.training import RecoveredOut
from grovekeeper_forests.amounts import SYMBOLS

_WIDTH = 600
_BAR_HEIGHT = 20
_PLOT_HEIGHT = 160
_SCALE_WIDTH = 320
_SCALE_EDGE = 52
_ROW_HEIGHT = 22
_NARROWEST = Decimal("1.5")
_HATCH_STEP = 8


def budget_bar(account: Mapping[str, Any], label: str, requested: str = "0") -> Markup:
    """Draw parts of a cap from the left: charged solid, reserved hatched, requested
    outlined; and a tick at the cap.

    Args:
        label: the bar in words, for readers who do not see it.
        requested: what a request asks for.
    """
    cap = Decimal(account["cap"])
    amounts = {
        "charged": Decimal(account["charged"]),
        "reserved": Decimal(account["reserved"]),
        "requested": Decimal(requested),
    }
    # never 0, which the parts are divided by
    whole = max(cap, sum(amounts.values()), Decimal(1).scaleb(-30))
    parts, start = [], Decimal(0)
    for kind, amount in amounts.items():
        left, width = start / whole * _WIDTH, max(amount / whole * _WIDTH, _NARROWEST)
        if amount:
            parts.append(
                Markup('<rect class="{}" x="{}" width="{}" height="{}"/>').format(
                    kind, _number(left), _number(width), _BAR_HEIGHT
                )
            )
        if amount and kind == "reserved":
            parts.append(_hatching(left, width))
        start += amount
    tick = min(cap / whole * _WIDTH, Decimal(_WIDTH - 1))
    return Markup(
        '<svg class="bar" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<rect class="empty" width="{w}" height="{h}"/>{parts}'
        '<line class="cap" x1="{x}" x2="{x}" y1="0" y2="{h}"/></svg>'
    ).format(
        w=_WIDTH,
        h=_BAR_HEIGHT,
        label=label,
        parts=Markup("").join(parts),
        x=_number(tick),
    )


def spend(spent: Spend, balance: Mapping[str, Any]) -> Markup | None:
    """Draw what the tightest cell has charged after each charge, oldest first; a charge
    links to its ledger entry.

    Returns:
        ``None`` without a charge that covers the tightest cell.
    """
    steps = [charge for charge in spent.charges if charge.covers]
    if not steps:
        return None
    symbol, highest = SYMBOLS[balance["unit"]], Decimal(steps[-1].total)
    # the height says which part of the cap is spent
    whole = max(Decimal(balance["cap"]), highest)
    width = Decimal(_WIDTH) / max(len(steps), 6)
    columns = []
    for index, charge in enumerate(steps):
        mechanism = charge.job_id or charge.description
        who, minute = words.who(charge.by, charge.by_name), words.minute(charge.at)
        step = _step(
            index * width,
            width,
            top=Decimal(charge.total) / whole,
            height=Decimal(charge.amount) / whole,
            link=f"{base()}/ui/ledger/{balance['account']}/entries/{charge.sequence}",
            text=f"{charge.amount} {symbol} charged, {charge.total} {symbol} in all: {mechanism}, {who}, {minute}",
        )
        columns.append(step)
    y = _number(_height(Decimal(balance["cap"]) / whole))
    cap = Markup('<line class="cap" x1="0" x2="{}" y1="{y}" y2="{y}"/>').format(
        _WIDTH, y=y
    )
    return Markup(
        '<svg class="plot spend" viewBox="0 0 {w} {h}" preserveAspectRatio="none" role="group" aria-label="{label}">'
        "{columns}{cap}</svg>"
    ).format(
        w=_WIDTH,
        h=_PLOT_HEIGHT,
        label=f"{len(steps)} charges, oldest first; each is a link to its entry",
        columns=Markup("").join(columns),
        cap=cap,
    )


def _step(
    start: Decimal,
    width: Decimal,
    *,
    top: Decimal,
    height: Decimal,
    link: str,
    text: str,
) -> Markup:
    y, foot = _height(top), _height(top - height)
    return Markup(
        '<a href="{link}" aria-label="{text}" data-words="{text}"><title>{text}</title>'
        '<rect class="target" x="{x}" y="0" width="{w}" height="{full}"/>'
        '<rect class="before" x="{x}" y="{foot}" width="{w}" height="{rest}"/>'
        '<rect class="charged" x="{x}" y="{y}" width="{w}" height="{h}"/></a>'
    ).format(
        link=link,
        text=text,
        x=_number(start),
        w=_number(width * Decimal("0.94")),
        full=_PLOT_HEIGHT,
        y=_number(y),
        h=_number(max(foot - y, Decimal("1.5"))),
        foot=_number(foot),
        rest=_number(_PLOT_HEIGHT - foot),
    )


def _height(share: Decimal) -> Decimal:
    """The place of a share of the plot's height; the full share is a little below the
    upper edge.
    """
    return Decimal(_PLOT_HEIGHT) - share * (_PLOT_HEIGHT - 4)


def accuracy(accuracy: AccuracyOut, majority: MajorityOut | None) -> Markup:
    """Draw a noisy accuracy as a dot between its intervals, from 0 to 100 %, with a
    mark at the largest class.
    """
    ends = [
        ("wide", accuracy.population_interval.low, accuracy.population_interval.high),
        ("interval", accuracy.interval.low, accuracy.interval.high),
    ]
    bar = Markup('<rect class="{}" x="{}" y="8" width="{}" height="16"/>')
    bars = []
    for kind, low, high in ends:
        width = max(_across(high) - _across(low), Decimal(1))
        bars.append(bar.format(kind, _number(_across(low)), _number(width)))
    mark = words = ""
    if majority is not None:
        mark = _vertical("cap", _across(majority.share), 2, 30)
        words = f"; the largest class alone {_percent(majority.share)}"
    dot, estimate = "", "no estimate"
    if accuracy.estimate is not None:
        dot = _vertical("estimate", _across(accuracy.estimate), 4, 28)
        estimate = _percent(accuracy.estimate)
    return Markup(
        '<svg class="plot accuracy" viewBox="0 0 {w} 32" preserveAspectRatio="none" role="img" aria-label="{label}">'
        '<rect class="empty" y="12" width="{w}" height="8"/>{bars}{mark}{dot}</svg>'
    ).format(
        w=_WIDTH,
        label=f"Accuracy {estimate}, between {_percent(accuracy.interval.low)} and "
        f"{_percent(accuracy.interval.high)}{words}",
        bars=Markup("").join(bars),
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
    return Markup(
        '<svg class="roc" viewBox="-2 -2 204 204" role="img" aria-label="ROC curve from noisy counts">'
        '<rect class="frame" width="200" height="200"/><line class="axis" x1="0" y1="200" x2="200" y2="0"/>'
        '<polyline class="curve" points="{}"/></svg>'
    ).format(" ".join(points))


def estimate(
    number: EstimateOut,
    scale: tuple[float, float],
    *,
    from_zero: bool,
    label: str,
) -> Markup:
    """Draw a noisy number with its interval, on the scale of its neighbours.

    Args:
        scale: the smallest and the largest number of the scale.
        from_zero: whether a bar from zero to the number says how large it is; the scale
            then has zero.
    """
    smallest, largest = scale
    span = (largest - smallest) or 1.0

    def place(value: float) -> Decimal:
        return _across((value - smallest) / span)

    low, high = place(number.low), place(number.high)
    parts = [
        Markup('<line class="whisker" x1="{}" x2="{}" y1="10" y2="10"/>').format(
            _number(low), _number(high)
        ),
        _vertical("whisker", low, 5, 15),
        _vertical("whisker", high, 5, 15),
    ]
    if number.value is not None and from_zero:
        zero, end = place(0.0), place(number.value)
        amount = Markup('<rect class="amount" x="{}" y="1" width="{}" height="18"/>')
        width = _number(abs(end - zero))
        parts.insert(0, amount.format(_number(min(zero, end)), width))
        parts.append(_vertical("axis", zero, 0, 20))
    elif number.value is not None:
        parts.append(_vertical("estimate", place(number.value), 3, 17))
    return Markup(
        '<svg class="plot interval-row" viewBox="-2 0 604 20" preserveAspectRatio="none" role="img"'
        ' aria-label="{label}">{parts}</svg>'
    ).format(label=label, parts=Markup("").join(parts))


def _across(share: float) -> Decimal:
    return Decimal(share) * _WIDTH


def _vertical(kind: str, x: Decimal, top: int, bottom: int) -> Markup:
    return Markup('<line class="{}" x1="{x}" x2="{x}" y1="{}" y2="{}"/>').format(
        kind, top, bottom, x=_number(x)
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def odds_scale(odds: str, *, label: str) -> Markup:
    """Draw a scale from a coin (50 %) to certainty (100 %) with a mark at the odds, and
    marks at ε = 0.1, 1 and 3.
    """
    mark = Markup(
        '<line class="mark" x1="{x}" x2="{x}" y1="16" y2="24"/><text x="{x}" y="38">ε = {e}</text>'
    )
    # the odds are 1 / (1 + exp(−ε))
    odds_of_epsilon = (("0.1", "0.525"), ("1", "0.7311"), ("3", "0.9526"))
    marks = Markup("").join(
        mark.format(x=_place(odds), e=epsilon) for epsilon, odds in odds_of_epsilon
    )
    return Markup(
        '<svg class="odds" viewBox="0 0 {w} 44" role="img" aria-label="{label}">'
        '<text x="20" y="20">50 %</text><text x="{last}" y="20">100 %</text>'
        '<line class="axis" x1="{start}" x2="{end}" y1="16" y2="16"/>{marks}<circle cx="{x}" cy="16" r="7"/></svg>'
    ).format(
        w=_SCALE_WIDTH,
        last=_SCALE_WIDTH - 22,
        start=_SCALE_EDGE,
        end=_SCALE_WIDTH - _SCALE_EDGE,
        label=label,
        marks=marks,
        x=_place(odds),
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
    row = Markup(
        '<text x="0" y="{text_y}">{name}</text><circle cx="{x}" cy="{y}" r="5"/>'
    )
    rows = []
    for index, recovered in enumerate(tables):
        top = index * _ROW_HEIGHT
        x = _number(_share_place(recovered.share))
        rows.append(row.format(text_y=top + 15, y=top + 11, x=x, name=recovered.table))
    mark = Markup('<text class="at" x="{x}" y="{y}">{percent} %</text>')
    marks = []
    for percent in (0, 50, 100):
        x = _number(_share_place(percent / 100))
        marks.append(mark.format(x=x, y=height - 4, percent=percent))
    return Markup(
        '<svg class="shares" viewBox="0 0 {w} {h}" role="img" aria-label="{label}">'
        '<rect class="band" x="{x}" y="0" width="{band}" height="{foot}"/>'
        '<line class="middle" x1="{middle}" x2="{middle}" y1="0" y2="{foot}"/>'
        '<line class="axis" x1="{left}" x2="{right}" y1="{foot}" y2="{foot}"/>{rows}{marks}</svg>'
    ).format(
        w=_SCALE_WIDTH,
        h=height,
        label=label,
        x=_number(low),
        band=_number(max(high - low, Decimal(2))),
        middle=_number(middle),
        foot=foot,
        left=_number(_share_place(0)),
        right=_number(_share_place(1)),
        rows=Markup("").join(rows),
        marks=Markup("").join(marks),
    )


def share_class(left: str, cap: str) -> str:
    """The class of a cell of a heat map, by the share of the cap that is used:
    ``share-0`` to ``share-4``.
    """
    share = 1 - Decimal(left) / (Decimal(cap) or Decimal(1))
    return f"share-{(share * 4).to_integral_value(ROUND_CEILING):f}"


def part_class(count: float, whole: float) -> str:
    """The class of a cell of a heat map, by its part of its row: ``share-0`` to
    ``share-3``. A noisy count may lie outside its row.
    """
    # Noise makes counts negative, and larger than their row.
    step = ceil(count / whole * 3)
    return f"share-{min(max(step, 0), 3)}"


def _hatching(start: Decimal, width: Decimal) -> Markup:
    """Diagonal lines over a part of the bar: a sign that does not depend on colour, and
    that needs no id.
    """
    lines = []
    for step in range(int((width + _BAR_HEIGHT) / _HATCH_STEP) + 1):
        # the line meets the lower edge here, and rises by 45 degrees
        foot = start - _BAR_HEIGHT + step * _HATCH_STEP
        left, right = max(foot, start), min(foot + _BAR_HEIGHT, start + width)
        if left < right:
            low, high = _BAR_HEIGHT - (left - foot), _BAR_HEIGHT - (right - foot)
            ends = map(_number, (left, low, right, high))
            lines.append("M{} {}L{} {}".format(*ends))
    return Markup('<path class="hatching" d="{}"/>').format("".join(lines))


def _place(odds: str) -> str:
    share = (Decimal(odds) - Decimal("0.5")) * 2
    return _number(_SCALE_EDGE + share * (_SCALE_WIDTH - 2 * _SCALE_EDGE))


def _share_place(share: float) -> Decimal:
    """The place of a recovered share. Shares beyond 0 and 1 occur by chance and lie a
    little beyond the axis.
    """
    return 120 + Decimal(min(max(share, -0.05), 1.05)) * 180


def _number(value: Decimal) -> str:
    return f"{value.quantize(Decimal('0.01')):f}"
