"""Bodies that are invalid JSON or break the schema of a call; API keys and grants that
break a rule.
"""

import gzip
from collections.abc import Iterator

from tests.server.refused.case import CANARY, Refused


def bodies() -> Iterator[Refused]:
    as_json = {"Content-Type": "application/json"}
    raw: list[tuple[str, bytes, str]] = [
        ("not-json", f"{{{CANARY}".encode(), "malformed-request"),
        ("nothing", b" ", "malformed-request"),
        ("two-values", b"{} {}", "malformed-request"),
        (
            "duplicate-key",
            b'{"name": "a", "name": "' + CANARY.encode() + b'"}',
            "malformed-request",
        ),
        (
            "deep-duplicate-key",
            b'{"parameters": {"x": [{"a": 1, "a": 2}]}}',
            "malformed-request",
        ),
        ("nan", b'{"epsilon": NaN}', "malformed-request"),
        ("infinity", b'{"epsilon": -Infinity}', "malformed-request"),
        ("not-utf-8", b'{"name": "' + CANARY.encode() + b'\xff"}', "malformed-request"),
        ("utf-16", '{"name": "x"}'.encode("utf-16"), "malformed-request"),
        ("deep", b"[" * 19_000 + b"]" * 19_000, "malformed-request"),
        (
            "rather-deep",
            b'{"parameters": ' + b"[" * 300 + b"]" * 300 + b"}",
            "malformed-request",
        ),
        ("long-number", b'{"epsilon": ' + b"9" * 5_000 + b"}", "malformed-request"),
        ("a-list", b"[]", "invalid-request"),
        ("a-text", b'"' + CANARY.encode() + b'"', "invalid-request"),
        ("null", b"null", "invalid-request"),
        (
            "surrogate",
            b'{"name": "' + CANARY.encode() + b'\\ud800"}',
            "invalid-request",
        ),
    ]
    paths = (
        "/datasets", "/plans", "/train", "/keys", "/populations", "/datasets/{dataset}/erasures",
        "/ledger/{dataset}/cap", "/ledger/{dataset}/reservations", "/ledger/{population}/cap",
    )  # fmt: skip
    for name, content, kind in raw:
        for path in paths:
            yield Refused(
                f"{name}{path}",
                "POST",
                path,
                kind,
                {"content": content, "headers": as_json},
            )
    for path in paths:
        for media_type in (
            "text/plain",
            "text/csv",
            "multipart/form-data; boundary=x",
            CANARY,
        ):
            options = {"content": b"{}", "headers": {"Content-Type": media_type}}
            yield Refused(
                f"{media_type}{path}", "POST", path, "unsupported-media-type", options
            )
        packed = {
            "content": gzip.compress(b"{}"),
            "headers": as_json | {"Content-Encoding": "gzip"},
        }
        yield Refused(f"gzip{path}", "POST", path, "unsupported-media-type", packed)
        yield Refused(
            f"empty{path}", "POST", path, "malformed-request", {"headers": as_json}
        )
    yield Refused(
        "many",
        "POST",
        "/keys",
        "too-large",
        {"content": b"[" * 20_000, "headers": as_json},
    )
    role = {"json": {"role": CANARY}}
    grant = "/datasets/{dataset}/grants/{key}"
    yield Refused(
        "grant-role", "PUT", grant, "invalid-request", role, "/role", "unknown-choice"
    )
    admin = {"json": {"role": "admin"}}
    yield Refused(
        "grant-admin", "PUT", grant, "invalid-request", admin, "/role", "unknown-choice"
    )
    for name, problem in (
        ("", "too-short"),
        ("x" * 129, "too-long"),
        (f"{CANARY}\x00", "malformed"),
    ):
        body = {"json": {"name": name, "roles": []}}
        yield Refused(
            f"key-name-{problem}",
            "POST",
            "/keys",
            "invalid-request",
            body,
            "/name",
            problem,
        )
    roles = {"json": {"name": "x", "roles": ["admin", CANARY]}}
    yield Refused(
        "key-role",
        "POST",
        "/keys",
        "invalid-request",
        roles,
        "/roles/1",
        "unknown-choice",
    )
    # they would allow nothing without a dataset
    for role in ("analyst", "predictor", "attester"):
        roles = {"json": {"name": "x", "roles": [role]}}
        yield Refused(
            f"key-role-{role}",
            "POST",
            "/keys",
            "invalid-request",
            roles,
            "/roles/0",
            "unknown-choice",
        )
