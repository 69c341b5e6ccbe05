"""Implements the options of ``curl`` that the guide uses, for machines without it:
``python -IS`` and this file.

It imports the standard library alone, because the guide has many commands, and each is
a new process.
"""

import argparse
import sys
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlencode


def main() -> int:
    """Sends one request and writes the body of the answer. Exits with 22 on an error
    status, as ``curl --fail``.
    """
    options = _parser().parse_args()
    headers = dict(line.split(": ", 1) for line in options.header)
    content: bytes | None = None
    if options.json is not None:
        content = options.json.encode()
        headers |= {"Content-Type": "application/json", "Accept": "application/json"}
    elif options.data_binary is not None:
        name = options.data_binary.removeprefix("@")
        content = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    query = urlencode([tuple(pair.split("=", 1)) for pair in options.data_urlencode])
    url = f"{options.url}?{query}" if query else options.url
    method = options.request or ("GET" if content is None else "POST")
    request = urllib.request.Request(url, content, headers, method=method)
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with direct.open(request, timeout=60) as answer:
            body, is_error = answer.read(), False
    except urllib.error.HTTPError as error:
        body, is_error = error.read(), True
    if not (is_error and options.fail):
        if options.output is None:
            sys.stdout.buffer.write(body)
        else:
            Path(options.output).write_bytes(body)
    return 22 if is_error and (options.fail or options.fail_with_body) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("url")
    for flag in (
        "--silent",
        "--show-error",
        "--fail",
        "--fail-with-body",
        "--no-buffer",
        "--get",
    ):
        parser.add_argument(flag, action="store_true")
    for option in ("--json", "--data-binary", "--request", "--output"):
        parser.add_argument(option)
    for option in ("--header", "--data-urlencode"):
        parser.add_argument(option, action="append", default=[])
    return parser


if __name__ == "__main__":
    sys.exit(main())
