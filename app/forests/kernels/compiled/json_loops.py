"""Reads the rows of a prediction request from JSON text in one compiled pass, without an object per value.

The loop reads the common form of a request and refuses every other text, valid or not, so it needs to be right only
about what it reads: every row has the same members in the same order, strings have no escapes, numbers have at most 19
digits. A number is rounded exactly, by the algorithm of Lemire ("Number parsing at a gigabyte per second", 2021), with
a table of powers of five.

The text begins and ends with a zero byte, which nothing that is read contains. So no loop compares places with the end,
and place 0 stands for "not read": nothing goes on from there. Places are unsigned, which saves the test for negative
indices.
"""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from app.forests.compilation.compiler import compiled, compiled_for, pair, read, triple, written

_MOST_DIGITS = 19
_HIGHEST_POWER = 64
"""Powers of ten from −64 to 64 are read."""
_NOT_READ = np.uint64(0)
"""The place of the zero byte before the text."""
_UNKNOWN = -1
_QUOTE, _COMMA, _COLON, _MINUS, _PLUS, _POINT = 34, 44, 58, 45, 43, 46
_ZERO, _NINE, _LARGE_E, _SMALL_E, _SMALL_N = 48, 57, 69, 101, 110
_ROWS, _COLUMNS = np.frombuffer(b"rows", np.uint8).copy(), np.frombuffer(b"columns", np.uint8).copy()
_OPEN_LIST, _BACKSLASH, _CLOSE_LIST, _OPEN, _CLOSE = 91, 92, 93, 123, 125
_HASH_START, _HASH_FACTOR = np.uint64(0xCBF29CE484222325), np.uint64(0x100000001B3)
_OF_SCAN = (
    read("uint8", 1),
    triple(read("uint8", 1), read("int64", 1), read("uint64", 1)),
    pair(read("int64", 1), read("float64", 2)),
    written("int64", 1),
    written("float64", 2),
)
"""Types of the text, the texts, the rules, the columns and the values."""
_HALF, _LOW_HALF = np.uint64(32), np.uint64(0xFFFFFFFF)
_ONE, _TWO, _THREE, _FOUR = np.uint64(1), np.uint64(2), np.uint64(3), np.uint64(4)
_TEN = np.uint64(10)
_TOP_BIT = np.uint64(63)
_UNSURE = np.uint64(0x1FF)
_SHIFT = np.uint64(64 - 52 - 3)
_LAST_TWO = np.uint64(3)


def _power_of_five(power: int) -> int:
    """The first 128 bits of a power of five, as the algorithm rounds them."""
    if power >= 0:
        five: int = 5**power
        return five << 128 - five.bit_length() if five.bit_length() <= 128 else five >> five.bit_length() - 128
    five = 5**-power
    n_bits = (five - 1).bit_length()
    if power >= -27:
        return (1 << n_bits + 127) // five + 1
    exact = (1 << 2 * n_bits + 128) // five + 1
    return exact >> exact.bit_length() - 128


_FIVES = [_power_of_five(power) for power in range(-_HIGHEST_POWER, _HIGHEST_POWER + 1)]
_UPPER = np.array([five >> 64 for five in _FIVES], dtype=np.uint64)
_LOWER = np.array([five & 2**64 - 1 for five in _FIVES], dtype=np.uint64)
_EXACT_DIGITS, _EXACT_POWER = np.uint64(2**53), 22
_TEN_TO_THE = np.array([10.0**power for power in range(_EXACT_POWER + 1)])
_LOWEST_EXPONENT = -400
_TWO_TO_THE = np.array([2.0**exponent for exponent in range(_LOWEST_EXPONENT, 401)])

Texts: TypeAlias = tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.uint64]]
"""Texts one after the other; where each begins, and one more number for the end of the last; and their hashes."""
Rules: TypeAlias = tuple[NDArray[np.int64], NDArray[np.float64]]
"""The first category of every column among the texts, and one number more; and per column the lower bound, the upper
bound, whether numbers are whole, the code of a missing cell (−1: no cell may be missing), whether it has categories."""
Values: TypeAlias = NDArray[np.float64]
"""The values of all columns, ``(n_columns, n_rows)``; codes of categories as numbers."""


@compiled
def _product(a: np.uint64, b: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The upper and the lower word of a product."""
    low = (a & _LOW_HALF) * (b & _LOW_HALF)
    first = (a >> _HALF) * (b & _LOW_HALF)
    second = (a & _LOW_HALF) * (b >> _HALF)
    middle = (low >> _HALF) + (first & _LOW_HALF) + (second & _LOW_HALF)
    high = (a >> _HALF) * (b >> _HALF) + (first >> _HALF) + (second >> _HALF) + (middle >> _HALF)
    return np.uint64(high), np.uint64((middle << _HALF) | (low & _LOW_HALF))


@compiled
def _rounded(digits: np.uint64, power: np.int64) -> float:
    """The double nearest to ``digits · 10^power``, ties to even."""
    if digits <= _EXACT_DIGITS and -_EXACT_POWER <= power <= _EXACT_POWER:  # both are doubles: one rounding
        return float(digits * _TEN_TO_THE[power] if power > 0 else digits / _TEN_TO_THE[-power])
    if digits == 0:
        return 0.0
    n_zeros = 0
    while not digits >> _TOP_BIT:
        digits = np.uint64(digits << _ONE)
        n_zeros += 1
    high, low = _product(digits, _UPPER[power + _HIGHEST_POWER])
    if high & _UNSURE == _UNSURE:
        more, _ = _product(digits, _LOWER[power + _HIGHEST_POWER])
        low = np.uint64(low + more)
        if more > low:
            high = np.uint64(high + _ONE)
    upper_bit = high >> _TOP_BIT
    shift = np.uint64(upper_bit + _SHIFT)
    mantissa = np.uint64(high >> shift)
    exponent = (((152170 + 65536) * power) >> 16) + 63 + np.int64(upper_bit) - n_zeros - 52
    if low <= _ONE and -4 <= power <= 23 and mantissa & _LAST_TWO == _ONE and mantissa << shift == high:
        mantissa = np.uint64(mantissa - _ONE)  # a tie goes to the even neighbour
    mantissa = np.uint64((mantissa + (mantissa & _ONE)) >> _ONE)
    return float(float(mantissa) * _TWO_TO_THE[exponent - _LOWEST_EXPONENT])


@compiled
def _after_space(text: NDArray[np.uint8], at: np.uint64) -> np.uint64:
    while text[at] == 32 or text[at] == 10 or text[at] == 13 or text[at] == 9:
        at += _ONE
    return at


@compiled
def _after(text: NDArray[np.uint8], at: np.uint64, mark: int) -> np.uint64:
    """Where the text goes on behind spaces, a mark and spaces."""
    at = _after_space(text, at)
    return _after_space(text, at + _ONE) if text[at] == mark else _NOT_READ


@compiled
def _string_end(text: NDArray[np.uint8], at: np.uint64) -> tuple[np.uint64, np.uint64, bool]:
    """Where the string that begins at ``at`` has its last quote, a hash of the string, and whether it is ASCII."""
    key, bits = _HASH_START, np.uint8(0)
    while text[at] != _QUOTE:
        if text[at] < 32 or text[at] == _BACKSLASH:
            return _NOT_READ, key, False
        bits |= text[at]
        key = np.uint64((key ^ np.uint64(text[at])) * _HASH_FACTOR)
        at += _ONE
    return at, key, bool(bits < 128)


@compiled
def _is_at(text: NDArray[np.uint8], at: np.uint64, content: NDArray[np.uint8], first: int, last: int) -> bool:
    """Whether the text goes on with a part of ``content``."""
    for i in range(first, last):
        if text[at] != content[i]:
            return False
        at += _ONE
    return True


@compiled
def _position(
    text: NDArray[np.uint8], start: np.uint64, end: np.uint64, key: np.uint64, texts: Texts, among: tuple[int, int]
) -> int:
    """The position of a string of the text among some of the texts; −1 if none of them equals the string."""
    content, starts, keys = texts
    for index in range(among[0], among[1]):
        first, last = starts[index], starts[index + 1]
        if keys[index] == key and last - first == np.int64(end - start) and _is_at(text, start, content, first, last):
            return index - among[0]
    return _UNKNOWN


@compiled
def _digits(
    text: NDArray[np.uint8], at: np.uint64, digits: np.uint64, n_digits: int
) -> tuple[np.uint64, np.uint64, int]:
    """Where the digits at ``at`` end, the number whose decimal form they continue, and its number of digits."""
    while _ZERO <= text[at] <= _NINE:
        digits = np.uint64(digits * _TEN + np.uint64(text[at] - _ZERO))
        n_digits += 1 if digits or n_digits else 0
        at += _ONE
    return at, digits, n_digits


@compiled
def _exponent(text: NDArray[np.uint8], at: np.uint64) -> tuple[np.uint64, np.int64]:
    """Where an exponent of at most three digits ends that begins behind its letter, and the exponent."""
    is_inverse = text[at] == _MINUS
    start = at + _ONE if is_inverse or text[at] == _PLUS else at
    end, exponent, _ = _digits(text, start, np.uint64(0), 0)
    if end == start or end > start + _THREE:
        return _NOT_READ, np.int64(0)
    return end, -np.int64(exponent) if is_inverse else np.int64(exponent)


@compiled
def _number(text: NDArray[np.uint8], at: np.uint64) -> tuple[np.uint64, float]:
    """Where the number that begins at ``at`` ends, and the number."""
    is_negative = text[at] == _MINUS
    start = at + _ONE if is_negative else at
    at, digits, n_digits = _digits(text, start, np.uint64(0), 0)
    if at == start or (text[start] == _ZERO and at > start + _ONE):
        return _NOT_READ, 0.0
    power = np.int64(0)
    if text[at] == _POINT:
        start = at + _ONE
        at, digits, n_digits = _digits(text, start, digits, n_digits)
        if at == start:
            return _NOT_READ, 0.0
        power = -np.int64(at - start)
    if text[at] == _SMALL_E or text[at] == _LARGE_E:
        at, exponent = _exponent(text, at + _ONE)
        power += exponent
    if n_digits > _MOST_DIGITS or not -_HIGHEST_POWER <= power <= _HIGHEST_POWER:
        return _NOT_READ, 0.0
    value = _rounded(digits, power)
    return at, -value if is_negative else value


@compiled
def _fill_members(
    text: NDArray[np.uint8], at: np.uint64, texts: Texts, n_columns: int, columns: NDArray[np.int64]
) -> int:
    """Fills the columns of the members of the first row, in order, and returns their number; −1 if they are not read.

    Values are skipped up to the next comma or brace; the pass over all rows reads them.
    """
    is_seen = np.zeros(n_columns, dtype=np.bool_)
    for member in range(n_columns):
        at = _after(text, at, _QUOTE)
        end, key, _ = _string_end(text, at)
        column = _position(text, at, end, key, texts, (0, n_columns))
        if at == _NOT_READ or end == _NOT_READ or column < 0 or is_seen[column]:
            return _UNKNOWN
        is_seen[column] = True
        columns[member] = column
        at = _after(text, end + _ONE, _COLON)
        if text[at] == _QUOTE:
            at, _, _ = _string_end(text, at + _ONE)
        while text[at] and text[at] != _COMMA and text[at] != _CLOSE:
            at += _ONE
        if text[at] != _COMMA:
            return member + 1
        at = _after_space(text, at + _ONE)
    return _UNKNOWN


@compiled
def _fill_cell(
    text: NDArray[np.uint8],
    at: np.uint64,
    texts: Texts,
    rules: Rules,
    cell: tuple[int, int],
    values: Values,
) -> np.uint64:
    """Reads the value that begins at ``at``, and returns where it ends."""
    column, row = cell
    missing = rules[1][column, 3]
    if text[at] == 110 and text[at + _ONE] == 117 and text[at + _TWO] == 108 and text[at + _THREE] == 108:  # null
        values[column, row] = missing if rules[1][column, 4] else np.nan
        return at + _FOUR if missing >= 0 else _NOT_READ
    if rules[1][column, 4]:
        start = at + _ONE
        end, key, is_ascii = _string_end(text, start)
        first, last = rules[0][column], rules[0][column + 1]
        code = _position(text, start, end, key, texts, (first, last))
        # A declared category is UTF-8; another string need not be.
        is_read = text[at] == _QUOTE and end != _NOT_READ and (code >= 0 or is_ascii)
        values[column, row] = last - first if code < 0 else code
        return end + _ONE if is_read else _NOT_READ
    at, value = _number(text, at)
    value = min(max(value, rules[1][column, 0]), rules[1][column, 1])
    values[column, row] = (np.rint(value) if rules[1][column, 2] else value) + 0.0
    return at


@compiled
def _after_name(text: NDArray[np.uint8], at: np.uint64, name: NDArray[np.uint8]) -> np.uint64:
    """Where the text goes on behind the name of a member, which begins at ``at``, and its colon."""
    end = at + _ONE + np.uint64(name.size)
    if text[at] != _QUOTE or not _is_at(text, at + _ONE, name, 0, name.size) or text[end] != _QUOTE:
        return _NOT_READ
    return _after(text, end + _ONE, _COLON)


@compiled_for(*_OF_SCAN)
def scan_rows(text: NDArray[np.uint8], texts: Texts, rules: Rules, columns: NDArray[np.int64], values: Values) -> int:
    """Reads ``{"rows": [{name: value, …}, …]}`` into sanitised columns; indices were checked.

    Args:
        text: the body of the request between zero bytes.
        texts: the names of the columns, and then the categories of all columns.
        rules: of the columns.
        columns: work space; afterwards the columns of the members of a row.
        values: the result.

    Returns:
        The number of members of a row; −1 if the text is not read.
    """
    n_columns, n_rows = values.shape
    content, starts, _ = texts
    at = _after(text, _after_name(text, _after(text, _ONE, _OPEN), _ROWS), _OPEN_LIST)
    n_members = _fill_members(text, _after(text, at, _OPEN), texts, n_columns, columns)
    for row in range(n_rows):
        at = _after(text, at, _OPEN)
        for member in range(n_members):
            column = columns[member]
            first, last = starts[column], starts[column + 1]
            if at == _NOT_READ or text[at] != _QUOTE or not _is_at(text, at + _ONE, content, first, last):
                return _UNKNOWN
            at += np.uint64(last - first) + _ONE
            if text[at] != _QUOTE:
                return _UNKNOWN
            at = _after(text, at + _ONE, _COLON)
            at = _fill_cell(text, at, texts, rules, (column, row), values)
            if at == _NOT_READ:
                return _UNKNOWN
            at = _after(text, at, _COMMA if member < n_members - 1 else _CLOSE)
        at = _after(text, at, _COMMA if row < n_rows - 1 else _CLOSE_LIST)
        if at == _NOT_READ:
            return _UNKNOWN
    at = _after(text, at, _CLOSE)
    return n_members if at + _ONE == np.uint64(text.size) else _UNKNOWN


@compiled_for(*_OF_SCAN)
def scan_columns(
    text: NDArray[np.uint8], texts: Texts, rules: Rules, columns: NDArray[np.int64], values: Values
) -> int:
    """Reads ``{"columns": {name: [value, …], …}}``; otherwise as :func:`scan_rows`."""
    n_columns, n_rows = values.shape
    is_seen = np.zeros(n_columns, dtype=np.bool_)
    at = _after(text, _after_name(text, _after(text, _ONE, _OPEN), _COLUMNS), _OPEN)
    for member in range(n_columns):
        if text[at] != _QUOTE:
            return _UNKNOWN
        end, key, _ = _string_end(text, at + _ONE)
        column = _position(text, at + _ONE, end, key, texts, (0, n_columns))
        if end == _NOT_READ or column < 0 or is_seen[column]:
            return _UNKNOWN
        is_seen[column] = True
        columns[member] = column
        at = _after(text, _after(text, end + _ONE, _COLON), _OPEN_LIST)
        for row in range(n_rows):
            at = _fill_cell(text, at, texts, rules, (column, row), values)
            at = _after(text, at, _COMMA if row < n_rows - 1 else _CLOSE_LIST)
            if at == _NOT_READ:
                return _UNKNOWN
        if text[at] != _COMMA:
            at = _after(text, _after(text, at, _CLOSE), _CLOSE)
            return member + 1 if at + _ONE == np.uint64(text.size) else _UNKNOWN
        at = _after_space(text, at + _ONE)
    return _UNKNOWN
