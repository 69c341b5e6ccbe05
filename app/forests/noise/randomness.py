"""Defines the random draws that mechanisms use, and their production implementation.

Growth, leaf release and every budget decision are plain Python over the six calls of :class:`Randomness`. No other code
in ``app.forests`` draws. So a test that passes an enumerating ``Randomness`` to a mechanism runs every path of the
production code, and the sampler tests compare :class:`SystemRandomness` with the exact law of each call
(docs/proofs/samplers.md).
"""

from fractions import Fraction
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.forests.noise.exact import ExactSampler
from app.forests.noise.keystream import Keystream
from app.forests.noise.tape import DEFAULT_BUFFER_WORDS, Tape


class Randomness(Protocol):
    """Independent draws, each with the exact law that its docstring states."""

    def uniform(self, n: int) -> int:
        """An integer from 0 to ``n - 1``, all equally likely: public structure and permutations.

        Args:
            n: public; 1 to 2³².
        """

    def bernoulli(self, p: Fraction) -> bool:
        """``True`` with probability exactly ``p``.

        Args:
            p: public; 0 to 1.
        """

    def permute_and_flip(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """The index of the candidate that permute-and-flip selects.

        Candidates are visited in uniformly random order; candidate r is accepted with probability
        exp(−inverse_scale · (max u − u_r)), and the first accepted candidate is the result. One call is one release.

        Args:
            utilities: PRIVATE; int64, ``(n_candidates,)``, at least one. Never modified.
            inverse_scale: public; ε divided by the range sensitivity of ``utilities``, in their own integer units.
        """

    def select_exponential(self, utilities: NDArray[np.int64], *, inverse_scale: Fraction) -> int:
        """The index of the candidate that the exponential mechanism selects.

        Pr[r] ∝ exp(inverse_scale · u_r). One call is one release.

        Args:
            utilities: PRIVATE; int64, ``(n_candidates,)``, at least one. Never modified.
            inverse_scale: public; ε divided by the range sensitivity of ``utilities``, in their own integer units.
        """

    def discrete_laplace(self, shape: tuple[int, ...], *, inverse_scale: Fraction) -> NDArray[np.int64]:
        """Independent integers with Pr[z] = (1 − q) / (1 + q) · q^|z|, where q = exp(−inverse_scale).

        Args:
            shape: public; of the result.
            inverse_scale: public; ε divided by the L1 sensitivity of the vector that the noise is added to.

        Returns:
            int64 array of that shape.
        """

    def rounded_gaussian(self, shape: tuple[int, ...], *, scale_bits: int) -> NDArray[np.int64]:
        """Independent integers, each the nearest to 2^scale_bits · Z for an independent standard normal Z.

        An integer vector q plus such noise equals q + 2^scale_bits · Z, rounded: post-processing of the Gaussian
        mechanism, with the guarantee of that mechanism, exactly.

        Args:
            shape: public; of the result.
            scale_bits: public; 0 to 40.

        Returns:
            int64 array of that shape.
        """


class SystemRandomness(ExactSampler):
    """The only production :class:`Randomness`: exact integer samplers on AES-256-CTR keyed by the operating system.

    No seed can be set. Two objects, or one object before and after a fork, never share a stream, and no argument can
    make a draw repeat.

    Privacy:
        Every draw has exactly the law that :class:`Randomness` states, given a stream of uniform words. The stream is
        AES-256-CTR under a key from ``os.urandom``, so it is uniform up to the security of AES. No floating-point
        number occurs between key and draw. *Not covered:* the time of a draw depends on its value; a copy of the
        machine's memory repeats the stream (docs/known-limits.md).

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
