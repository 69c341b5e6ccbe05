"""Defines the random draws that mechanisms use, and their production implementation.

Growth, leaf release and every budget decision are plain Python over the six calls of
:class:`Randomness`. No other code in ``grovekeeper_forests`` draws. So a test that
passes an enumerating ``Randomness`` to a mechanism runs every path of the production
code, and the sampler tests compare :class:`SystemRandomness` with the exact law of each
call (docs/proofs/samplers.md).

:class:`ExactSampler` makes the draws from a tape of uniform words. It checks arguments
and converts them to integers; the compiled loops are in
``grovekeeper_forests.noise.draws``. :class:`PaidRandomness` draws noise and selections
only while the event of a job pays for them.

The samplers are deterministic functions of an endless tape of uniform words, which they
read through a window. A draw that reaches the window's end must continue with the words
that it has already read. To start again on fresh words would favour draws that need few
words, because long draws would be discarded more often than short ones, and so would
change the law. :class:`Tape` therefore keeps the words since the start of the open
draw, appends fresh words, and lets the sampler evaluate the draw again from the first
kept word. The result is the same function of the same tape, so it does not depend on
the window's size. The words of production are AES-256 in counter mode, keyed by the
operating system.
"""

import logging
import math
import os
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from os import getpid, urandom
from typing import Any, Concatenate, Final, ParamSpec, Protocol, TypeAlias, TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from grovekeeper_forests.array_types import Int64Array, UInt64Array
from grovekeeper_forests.noise import draws
from grovekeeper_forests.privacy.events import (
    QUANTUM,
    DiscreteLaplace,
    Event,
    ExponentialMechanism,
    Parallel,
    PermuteAndFlip,
    RoundedGaussian,
    Sequential,
)


class Randomness(Protocol):
    """Independent draws, each with the exact law that its docstring states."""

    def uniform(self, n: int) -> int:
        """An integer from 0 to ``n - 1``, all equally likely: public structure and
        permutations.

        Args:
            n: public; 1 to 2³².
        """

    def bernoulli(self, p: Fraction) -> bool:
        """``True`` with probability exactly ``p``.

        Args:
            p: public; 0 to 1.
        """

    def permute_and_flip(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """The index of the candidate that permute-and-flip selects.

        Candidates are visited in uniformly random order; candidate r is accepted with
        probability exp(−inverse_scale · (max u − u_r)), and the first accepted
        candidate is the result. One call is one release.

        Args:
            utilities: PRIVATE; int64, ``(n_candidates,)``, at least one. Never
                modified.
            inverse_scale: public; ε divided by the range sensitivity of ``utilities``,
                in their own integer units.
        """

    def select_exponential(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """The index of the candidate that the exponential mechanism selects.

        Pr[r] ∝ exp(inverse_scale · u_r). One call is one release.

        Args:
            utilities: PRIVATE; int64, ``(n_candidates,)``, at least one. Never
                modified.
            inverse_scale: public; ε divided by the range sensitivity of ``utilities``,
                in their own integer units.
        """

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> Int64Array:
        """Independent integers with Pr[z] = (1 − q) / (1 + q) · q^|z|, where q =
        exp(−inverse_scale).

        Args:
            shape: public; of the result.
            inverse_scale: public; ε divided by the L1 sensitivity of the vector that
                the noise is added to.

        Returns:
            int64 array of that shape.
        """

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> Int64Array:
        """Independent integers, each the nearest to 2^scale_bits · Z for an independent
        standard normal Z.

        An integer vector q plus such noise equals q + 2^scale_bits · Z, rounded:
        post-processing of the Gaussian mechanism, with the guarantee of that mechanism,
        exactly.

        Args:
            shape: public; of the result.
            scale_bits: public; 0 to 40.

        Returns:
            int64 array of that shape.
        """


DEFAULT_BUFFER_WORDS: Final = 2**13
"""Words produced at a time: 64 KiB fit in a core's cache, and the cost of a refill is
negligible.
"""

MAX_BUFFER_WORDS: Final = 2**20
"""Size of the largest window. A draw needs more words with a probability below 2⁻⁴⁰⁰⁰
(docs/proofs/samplers.md).
"""


class BrokenWordSource(RuntimeError):
    """A draw needs more than :data:`MAX_BUFFER_WORDS` words, so the source does not
    produce random words.
    """


class WordSource(Protocol):
    """A source of random words."""

    def fill(self, words: UInt64Array) -> None:
        """Overwrites all of ``words`` with independent uniform words; never returns the
        same words twice.
        """


class Tape:
    """A window on a word source.

    Attributes:
        words: the window, uint64.
        cursor: int64, one element: the position in ``words`` of the first word that no
            finished draw has used. A sampler moves the cursor once per finished draw.
    """

    def __init__(
        self, source: WordSource, *, n_words: int = DEFAULT_BUFFER_WORDS
    ) -> None:
        if not 1 <= n_words <= MAX_BUFFER_WORDS:
            raise ValueError("a window holds 1 to 2^20 words")
        self._source = source
        self._process_id = os.getpid()
        self.words = np.zeros(n_words, dtype=np.uint64)
        self.cursor = np.full(1, n_words, dtype=np.int64)

    def forget_after_fork(self) -> None:
        """Drops the unread words if this process is a fork: the parent process will use
        them.
        """
        if self._process_id != os.getpid():
            self._process_id = os.getpid()
            self.cursor[0] = self.words.size

    def extend(self) -> None:
        """Appends fresh words after the words of the open draw.

        Raises:
            BrokenWordSource: the open draw has used the largest window.
        """
        unread = self.words[self.cursor[0] :]
        if unread.size == MAX_BUFFER_WORDS:
            raise BrokenWordSource("the word source does not behave like a random one")
        if unread.size == self.words.size:
            n_words = min(2 * unread.size, MAX_BUFFER_WORDS)
            self.words = np.empty(n_words, dtype=np.uint64)
        # Fresh words alone would favour draws that need few words (S2 of
        # docs/proofs/samplers.md).
        self.words[: unread.size] = unread
        self._source.fill(self.words[unread.size :])
        self.cursor[0] = 0


_KEY_BYTES = 32
_BLOCK_BYTES = 16


class Keystream:
    """An unlimited stream of words that cannot be predicted or replayed, also after a
    fork.

    A forked child holds a copy of the cipher's state, so it would repeat its parent's
    stream; the stream therefore takes a new key whenever the process id changes. A copy
    of a machine's memory (a snapshot that is restored or cloned) keeps the process and
    repeats the stream: docs/known-limits.md.
    """

    def __init__(self) -> None:
        self._zeros = b""
        self._rekey()

    def fill(self, words: UInt64Array) -> None:
        """Overwrites ``words``, which must be contiguous, with the next words of the
        stream.
        """
        if self._process_id != getpid():
            self._rekey()
        # Counter mode combines its stream with the text by XOR, so zeros give the stream.
        if len(self._zeros) < words.nbytes:
            self._zeros = bytes(words.nbytes)
        self._cipher.update_into(
            memoryview(self._zeros)[: words.nbytes], words.data.cast("B")
        )

    def _rekey(self) -> None:
        self._process_id = getpid()
        # A counter that starts at zero is safe, because no key is used twice.
        cipher = Cipher(AES(urandom(_KEY_BYTES)), CTR(bytes(_BLOCK_BYTES)))
        self._cipher: CipherContext = cipher.encryptor()


MAX_INVERSE_SCALE: Final = 2**30
"""Larger than every ε of a budget, and small enough that the product with a utility gap
of 1 stays inside 64 bits.
"""

MAX_UNIFORM: Final = 2**32

MAX_SCALE_BITS: Final = 40
"""Whole parts of normal numbers stay below 2²⁰ (a window's words), so scaled ones stay
below 2⁶¹.
"""

_WORD_BITS: Final = 64

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Words: TypeAlias = UInt64Array
Cursor: TypeAlias = Int64Array


@dataclass(eq=False)
class ExactSampler:
    """Draws from a tape, for one thread at a time. Forking in the middle of a draw is
    not supported.
    """

    _tape: Tape
    _turn: threading.Lock = field(default_factory=threading.Lock)

    def uniform(self, n: int) -> int:
        """See ``Randomness.uniform``.

        Raises:
            ValueError: ``n`` is not from 1 to 2³².
        """
        if not 1 <= n <= MAX_UNIFORM:
            raise ValueError("a uniform draw has 1 to 2^32 outcomes")
        return int(self._draw(draws.uniform, np.uint64(n)))

    def bernoulli(self, p: Fraction) -> bool:
        """See ``Randomness.bernoulli``. Compares a uniform real with ``p``, 64 bits at
        a time.

        Raises:
            ValueError: ``p`` is not from 0 to 1.
        """
        if not 0 <= p <= 1:
            raise ValueError("a probability is from 0 to 1")
        remainder = p.numerator
        while True:
            digit, remainder = divmod(remainder << _WORD_BITS, p.denominator)
            word = int(self._draw(draws.word))
            if word != digit:
                return word < digit
            if remainder == 0:
                # All digits of p were equal, so the real is not below p.
                return False

    def permute_and_flip(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """See ``Randomness.permute_and_flip``.

        A gap max u − u_r above C = ⌊(2⁶³ − 1) / (inverse_scale · 2³²)⌋ counts as C, so
        that its product with the inverse scale stays inside 64 bits. The effect equals
        raising every utility to at least max u − C. If all utilities of two neighbours
        differ by amounts in [a, b], then so do their maxima, the maxima minus the
        constant C, and the larger of two such numbers. So clipping keeps the range
        sensitivity and monotony of the utilities, and the guarantee is unchanged
        (docs/proofs/samplers.md). A clipped candidate is accepted with probability at
        most exp(−2³⁰).

        Raises:
            ValueError: the utilities are not an int64 vector with 1 to 2³² candidates,
                or the inverse scale is not a positive multiple of ``QUANTUM`` up to
                :data:`MAX_INVERSE_SCALE`.
        """
        _require_utilities(utilities)
        # Both are made before the draw, so that a draw which needs a longer window goes
        # on where it ended.
        order = np.arange(utilities.size, dtype=np.int64)
        visited = np.array([0], dtype=np.int64)
        rate = _rate(inverse_scale)
        return int(
            self._draw(
                draws.permute_and_flip,
                np.ascontiguousarray(utilities),
                rate,
                order,
                visited,
            )
        )

    def select_exponential(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """See ``Randomness.select_exponential``. Gaps are clipped as in
        :meth:`permute_and_flip`.

        The expected number of trials is at most the number of candidates, because the
        best one is always accepted.

        Raises:
            ValueError: as :meth:`permute_and_flip`.
        """
        _require_utilities(utilities)
        return int(
            self._draw(
                draws.select_exponential,
                np.ascontiguousarray(utilities),
                _rate(inverse_scale),
            )
        )

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> Int64Array:
        """See ``Randomness.discrete_laplace``.

        Raises:
            ValueError: the inverse scale is not a positive multiple of ``QUANTUM`` up
                to :data:`MAX_INVERSE_SCALE`.
        """
        noise = np.zeros(math.prod(shape), dtype=np.int64)
        finished = np.array([0], dtype=np.int64)
        self._draw(draws.discrete_laplace, _rate(inverse_scale), noise, finished)
        return noise.reshape(shape)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> Int64Array:
        """See ``Randomness.rounded_gaussian``.

        Raises:
            ValueError: ``scale_bits`` is not from 0 to :data:`MAX_SCALE_BITS`.
        """
        if not 0 <= scale_bits <= MAX_SCALE_BITS:
            raise ValueError("a normal number is scaled by 2^0 to 2^40")
        noise = np.zeros(math.prod(shape), dtype=np.int64)
        finished = np.array([0], dtype=np.int64)
        numbers = np.zeros((draws.N_NUMBERS, draws.MAX_DIGITS + 1), dtype=np.uint64)
        self._draw(
            draws.rounded_gaussian, np.uint64(scale_bits), numbers, noise, finished
        )
        return noise.reshape(shape)

    def _draw(
        self,
        draw: Callable[Concatenate[Words, Cursor, Arguments], Result],
        *arguments: Arguments.args,
        **named: Arguments.kwargs,
    ) -> Result:
        """Runs a compiled draw, and extends the window whenever the draw needs more
        words.
        """
        with self._turn:
            # Before the first word is read: parent and child must not share a draw.
            self._tape.forget_after_fork()
            while True:
                try:
                    return draw(
                        self._tape.words, self._tape.cursor, *arguments, **named
                    )
                except draws.TapeExhausted:
                    self._tape.extend()


def _require_utilities(utilities: Int64Array) -> None:
    if (
        utilities.dtype != np.int64
        or utilities.ndim != 1
        or not 1 <= utilities.size <= MAX_UNIFORM
    ):
        raise ValueError("utilities are an int64 vector of 1 to 2^32 candidates")


def _rate(inverse_scale: Fraction) -> Any:
    """Converts an inverse scale to units of ``QUANTUM``, as uint64."""
    rate = inverse_scale / QUANTUM
    if rate.denominator != 1 or not 0 < inverse_scale <= MAX_INVERSE_SCALE:
        raise ValueError(
            "an inverse scale is a positive multiple of 2^-32, at most 2^30"
        )
    return np.uint64(rate.numerator)


class SystemRandomness(ExactSampler):
    """The only production :class:`Randomness`: exact integer samplers on AES-256-CTR
    keyed by the operating system.

    No seed can be set. Two objects, or one object before and after a fork, never share
    a stream, and no argument can make a draw repeat.

    Privacy:
        Every draw has exactly the law that :class:`Randomness` states, given a stream
        of uniform words. The stream is AES-256-CTR under a key from ``os.urandom``, so
        it is uniform up to the security of AES. No floating-point number occurs between
        key and draw. *Not covered:* the time of a draw depends on its value; a copy of
        the machine's memory repeats the stream (docs/known-limits.md).

    Source:
        Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential Privacy", 2020, algorithms 1 and 2;
        McKenna and Sheldon, "Permute-and-Flip", 2020, algorithm 1; Karney, "Sampling Exactly from the Normal
        Distribution", 2016, algorithm N. docs/proofs/samplers.md, docs/proofs/gaussian.md.
    """

    def __init__(self, *, buffer_words: int = DEFAULT_BUFFER_WORDS) -> None:
        """Opens a fresh stream.

        Args:
            buffer_words: 64-bit words produced at a time; changes speed, never a law.
        """
        super().__init__(Tape(Keystream(), n_words=buffer_words))


_log = logging.getLogger(__name__)
_Mechanism: TypeAlias = DiscreteLaplace | PermuteAndFlip | ExponentialMechanism
_Kind: TypeAlias = tuple[str, int, int]
"""Type of a leaf of an event, and numerator and denominator of its inverse scale or
variance: integers hash faster.
"""


class UnpaidDraw(RuntimeError):
    """A draw that no part of the event pays for. A bug of a mechanism, or a stored plan
    that was changed.
    """


class PaidRandomness:
    """A :class:`Randomness` that stops a job before a draw that its event does not pay
    for.

    Selections and coordinates of noise are counted by mechanism and scale. The event
    states the most draws of each kind on every path of a job; growth forfeits those
    that its path does not take (:func:`forfeit`). So after the last draw nothing is
    left, and one tree more, another scale, or a table that is released again is not
    paid for. Public coins cost nothing.

    Privacy:
        The counts are those of the event, of the public shapes of draws and of released
        choices, so whether a job stops does not depend on rows in another way (lemma
        L7). *Not covered:* draws of one kind and scale are alike here, so an exchange
        between two nodes of a level, or between parts of different sensitivity, is not
        noticed, and a draw too many may take what a later draw of its kind needs, which
        then stops the job; the enumerations of tests/privacy cover it.
    """

    def __init__(self, randomness: Randomness, *events: Event) -> None:
        """Keeps what events pay for.

        Args:
            events: of every account that pays for the job.
        """
        self._randomness = randomness
        self._left = Counter[_Kind]()
        for event in events:
            self._add(event, times=1)

    @property
    def left(self) -> Counter[_Kind]:
        """Selections, and coordinates of noise, that are paid for and not drawn yet."""
        return +self._left  # the plus sign drops kinds of which nothing is left

    def note_unused(self) -> None:
        """Logs that paid draws were not drawn: a bug of a mechanism that loses nothing,
        so that no job fails for it.
        """
        if self.left:
            _log.warning("a release drew less than its event pays for")

    def forfeit(
        self, mechanism: type[_Mechanism], *, inverse_scale: Fraction, count: int
    ) -> None:
        """See :func:`forfeit`."""
        self._pay(mechanism.TYPE, inverse_scale, count)

    def uniform(self, n: int) -> int:
        """See ``Randomness.uniform``."""
        return self._randomness.uniform(n)

    def bernoulli(self, p: Fraction) -> bool:
        """See ``Randomness.bernoulli``."""
        return self._randomness.bernoulli(p)

    def permute_and_flip(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """See ``Randomness.permute_and_flip``."""
        # Paid first, here and below: an unpaid draw must not happen, even if its result
        # is thrown away.
        self._pay(PermuteAndFlip.TYPE, inverse_scale, 1)
        return self._randomness.permute_and_flip(utilities, inverse_scale=inverse_scale)

    def select_exponential(
        self, utilities: Int64Array, *, inverse_scale: Fraction
    ) -> int:
        """See ``Randomness.select_exponential``."""
        self._pay(ExponentialMechanism.TYPE, inverse_scale, 1)
        return self._randomness.select_exponential(
            utilities, inverse_scale=inverse_scale
        )

    def discrete_laplace(
        self, shape: tuple[int, ...], *, inverse_scale: Fraction
    ) -> Int64Array:
        """See ``Randomness.discrete_laplace``."""
        self._pay(DiscreteLaplace.TYPE, inverse_scale, math.prod(shape))
        return self._randomness.discrete_laplace(shape, inverse_scale=inverse_scale)

    def rounded_gaussian(
        self, shape: tuple[int, ...], *, scale_bits: int
    ) -> Int64Array:
        """See ``Randomness.rounded_gaussian``."""
        self._pay(RoundedGaussian.TYPE, Fraction(4**scale_bits), math.prod(shape))
        return self._randomness.rounded_gaussian(shape, scale_bits=scale_bits)

    def _add(self, event: Event, *, times: int) -> None:
        match event:
            # Parts of disjoint rows cost their largest, but each of them draws.
            case Sequential(parts) | Parallel(_, parts):
                for part in parts:
                    self._add(part.event, times=times * part.times)
            case DiscreteLaplace():
                self._left[_kind(event.TYPE, event.inverse_scale)] += (
                    times * event.coordinates
                )
            case RoundedGaussian():
                self._left[_kind(event.TYPE, event.sigma_squared)] += (
                    times * event.coordinates
                )
            case PermuteAndFlip() | ExponentialMechanism():
                self._left[_kind(event.TYPE, event.inverse_scale)] += times

    def _pay(self, mechanism: str, scale: Fraction, count: int) -> None:
        kind = _kind(mechanism, scale)
        # A negative count would pay for later draws.
        if not 0 <= count <= self._left[kind]:
            raise UnpaidDraw("a draw that no part of the event pays for")
        self._left[kind] -= count


def _kind(mechanism: str, scale: Fraction) -> _Kind:
    return mechanism, scale.numerator, scale.denominator


def forfeit(
    randomness: Randomness,
    mechanism: type[_Mechanism],
    *,
    inverse_scale: Fraction,
    count: int = 1,
) -> None:
    """Takes draws away that an event pays for and that a job leaves out, so that they
    pay for no other draw.

    Args:
        randomness: of the job; changed only where it counts what is paid for.
        mechanism: of the draws.
        inverse_scale: of the draws.
        count: public, or a function of released choices; selections, or coordinates of
            noise.

    Raises:
        UnpaidDraw: fewer draws of this kind are left.
    """
    if isinstance(randomness, PaidRandomness):
        randomness.forfeit(mechanism, inverse_scale=inverse_scale, count=count)
