"""Writes a picture with few colours as a PNG with a palette, which is a quarter of the
size of Chromium's PNG.
"""

import base64
import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from playwright.sync_api import Page

_PIXELS = """async (png) => {
  const image = new Image();
  image.src = `data:image/png;base64,${png}`;
  await image.decode();
  const canvas = new OffscreenCanvas(image.width, image.height), context = canvas.getContext("2d");
  context.drawImage(image, 0, 0);
  const bytes = context.getImageData(0, 0, image.width, image.height).data;
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return [image.width, image.height, btoa(text)];
}"""
"""Decodes a PNG in the browser: width, height, and four bytes for each pixel."""

_MOST = 256


def write(file: Path, png: bytes, blank: Page) -> None:
    """Writes a picture.

    Args:
        file: the PNG to write.
        png: the picture.
        blank: an empty page of the browser, which decodes the picture.
    """
    width, height, pixels = blank.evaluate(
        _PIXELS, base64.b64encode(png).decode("ascii")
    )
    rgba = np.frombuffer(base64.b64decode(pixels), np.uint8).reshape(-1, 4)
    palette, places = _palette(rgba[:, :3])
    # each line begins with filter 0
    lines = np.pad(places.astype(np.uint8).reshape(height, width), ((0, 0), (1, 0)))
    header = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = [
        (b"IHDR", header),
        (b"PLTE", palette.tobytes()),
        (b"IDAT", zlib.compress(lines.tobytes(), 9)),
        (b"IEND", b""),
    ]
    file.write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(*part) for part in parts))


def _palette(colours: NDArray[np.uint8]) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """The most frequent colours, and for each pixel the place of the nearest of them."""
    numbers = colours.astype(np.uint32) @ np.array([65_536, 256, 1], np.uint32)
    found, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    parts = np.stack([found >> 16, found >> 8, found], axis=1).astype(np.uint8)
    palette = parts[np.argsort(-counts, kind="stable")[:_MOST]]
    distances = np.abs(parts[:, None, :].astype(np.int16) - palette[None, :, :]).sum(
        axis=2
    )
    return palette, distances.argmin(axis=1)[inverse]


def _chunk(kind: bytes, content: bytes) -> bytes:
    return (
        struct.pack(">I", len(content))
        + kind
        + content
        + struct.pack(">I", zlib.crc32(kind + content))
    )
