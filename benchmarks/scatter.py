"""Compiles a C kernel that adds weights to the cells of histograms: the reference for
our loop.

The kernel does what a plain C programmer writes: for each block of rows, the part of
the cell number that no feature changes, then one addition per feature and row, with
64-bit sums. It checks no index and is compiled with ``-O3 -march=native``.
"""

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

_SOURCE = r"""
#include <stdint.h>
#define BLOCK 16384
void scatter(const uint8_t *X, const int32_t *y, const int32_t *node, const uint16_t *weight, const uint32_t *first,
             long n_features, long n_rows, long n_bins, long n_classes, int64_t *cells) {
    uint32_t base[BLOCK];
    for (long start = 0; start < n_rows; start += BLOCK) {
        long n = n_rows - start < BLOCK ? n_rows - start : BLOCK;
        for (long i = 0; i < n; i++)
            base[i] = (uint32_t)(node[start + i] * n_bins * n_classes + y[start + i]);
        for (long f = 0; f < n_features; f++) {
            const uint8_t *column = X + f * n_rows + start;
            uint32_t offset = first[f] * n_classes;
            for (long i = 0; i < n; i++)
                cells[base[i] + offset + column[i] * (uint32_t)n_classes] += weight[start + i];
        }
    }
}
"""


def compiled() -> Callable[..., NDArray[np.int64]] | None:
    """The kernel as a function of X, y, node, weight and the shape of the histogram;
    ``None`` without a C compiler.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "scatter.c", Path(folder) / "scatter.so"
        source.write_text(_SOURCE)
        subprocess.run(
            [
                compiler,
                "-O3",
                "-march=native",
                "-shared",
                "-fPIC",
                "-o",
                str(library),
                str(source),
            ],
            check=True,
        )
        kernel = ctypes.CDLL(str(library)).scatter

    def scatter(
        X: NDArray[np.uint8],
        y: NDArray[np.int32],
        node: NDArray[np.int32],
        weight: NDArray[np.uint16],
        *,
        shape: tuple[int, int, int],
    ) -> NDArray[np.int64]:
        n_nodes, n_bins, n_classes = shape
        n_all_bins = len(X) * n_bins
        counts = np.zeros((n_nodes, n_all_bins, n_classes), dtype=np.int64)
        first = np.arange(0, n_all_bins, n_bins, dtype=np.uint32)
        kernel(
            *map(_pointer, (X, y, node, weight, first)),
            *map(ctypes.c_long, (*X.shape, n_all_bins, n_classes)),
            _pointer(counts),
        )
        return counts

    return scatter


def _pointer(array: NDArray[Any]) -> ctypes.c_void_p:
    return array.ctypes.data_as(ctypes.c_void_p)
