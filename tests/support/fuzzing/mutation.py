"""Changes bytes at random: copies, tokens of JSON and CSV, other bytes."""

from collections.abc import Sequence
from random import Random

TOKENS = (
    b"0", b"-1", b"1e99", b"1e-9999999", b"9" * 40, b"1/0", b"0.1", b"-0", b"NaN", b"Infinity", b"null", b"true",
    b'""', b"{}", b"[]", b"[[[[", b"]]]]", b'{"a":', b'"a":1,', b",", b":", b'"', b"\\", b"\\u0000", b"\\ud800",
    b"\\u202e", b"\x00", b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\n", b"\r", b"\r\n", b";", b"=",
    b"1e999999999999999999", b"-1e-999999999999999999", b"Content-Length: 5\r\n", b"Transfer-Encoding: chunked\r\n",
    b"\r\n\r\n", b"0\r\n\r\n", b" ", b"\t", b"' OR 1=1 --", b"../", b"%00",
)  # fmt: skip
"""Bytes that readers of JSON, CSV and numbers treat in special ways."""

MAX_BYTES = 8_192


def mutated(data: bytes, others: Sequence[bytes], random: Random) -> bytes:
    """Returns a copy with one to four changes. Some of them copy from ``others``."""
    result = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        start = random.randrange(len(result) + 1)
        end = min(len(result), start + random.choice((0, 1, 1, 2, 8, 64)))
        match random.randrange(6):
            case 0:
                result[start:end] = b""
            case 1:
                result[start:end] = random.choice(TOKENS)
            case 2:
                result[start:start] = result[start:end] * random.choice((1, 2, 50))
            case 3:
                result[start:end] = random.randbytes(end - start)
            case 4:
                other = random.choice(others)
                begin = random.randrange(len(other) + 1)
                result[start:end] = other[
                    begin : begin + random.choice((1, 8, 64, 512))
                ]
            case 5:
                result[start:end] = bytes(
                    byte ^ (1 << random.randrange(8)) for byte in result[start:end]
                )
    return bytes(result[:MAX_BYTES])
