"""Queries, path segments, methods and headers that the API must refuse."""

from collections.abc import Iterator

from tests.server.refused.case import CANARY, Refused
from tests.support.server import training


def _long_queries() -> Iterator[Refused]:
    for name, query, at, problem in (
        ("values", f"scope={'1,' * 20_001}", "/scope", "too-many"),
        ("bytes", f"scope={'1' * 41_000}", "", "query-too-long"),
        ("parameters", "&" * 1_100, "", "query-too-long"),
    ):
        yield Refused(
            f"many-{name}",
            "GET",
            f"/ledger/{{dataset}}?{query}",
            "invalid-request",
            {},
            at,
            problem,
        )


def queries_and_paths() -> Iterator[Refused]:
    lists = (
        "/datasets", "/jobs", "/models", "/keys", "/ledger", "/ledger/{dataset}/entries", "/populations",
        "/ledger/{population}/entries",
    )  # fmt: skip
    for path in lists:
        for limit, problem in (
            ("0", "too-small"), ("501", "too-large"), ("-1", "too-small"), (CANARY, "not-an-integer"),
            ("1.5", "not-an-integer"), ("", "not-an-integer"), ("9" * 5_000, None), ("٣", None),
        ):  # fmt: skip
            query = {"params": {"limit": limit}}
            name = f"limit-{limit[:9]}{path}"
            yield Refused(
                name, "GET", path, "invalid-request", query, "/limit", problem
            )
        for cursor in ("\x00", f"{CANARY} ", "é", "x" * 129, "' OR 1=1"):
            yield Refused(
                f"cursor-{cursor[:9]!r}{path}",
                "GET",
                path,
                "invalid-request",
                {"params": {"cursor": cursor}},
            )
    query, path = {"params": {"actor": f"{CANARY}\0"}}, "/ledger/{dataset}/entries"
    yield Refused("nul", "GET", path, "invalid-request", query, "", "nul-in-the-query")
    for path in (
        "/jobs",
        "/models",
        "/ledger/{dataset}/entries",
        "/populations",
        "/ledger/{population}/entries",
    ):
        query = {"params": {"cursor": "nobody"}}
        yield Refused(
            f"cursor-unknown{path}",
            "GET",
            path,
            "invalid-request",
            query,
            "/cursor",
            "unknown",
        )
    scopes = [
        (CANARY, "/scope", "not-json"), ("[]", "/scope", "not-an-object"), ("", "/scope", "not-json"),
        ('{"shard": []}', "/scope/shard", "no-cell"), ('{"shard": [9]}', "/scope/shard", "unknown-cell"),
        ('{"shard": 1}', "/scope/shard", "not-a-list"), (f'{{"{CANARY}": [1]}}', "/scope", "unknown-partition"),
        ("[" * 13_000, "/scope", "not-json"), ("9" * 5_000, "/scope", "not-json"), ("NaN", "/scope", "not-json"),
    ]  # fmt: skip
    for scope, at, problem in scopes:
        query = {"params": {"scope": scope}}
        name = f"scope-{scope[:9]}-{problem}"
        yield Refused(
            name, "GET", "/ledger/{dataset}", "invalid-request", query, at, problem
        )
    for scope, at, problem in (
        ('{"shard": [0]}', "/scope", "unknown-partition"),
        ("[]", "/scope", "not-an-object"),
    ):
        query = {"params": {"scope": scope}}
        yield Refused(
            f"scope-{scope[:9]}-population",
            "GET",
            "/ledger/{population}",
            "invalid-request",
            query,
            at,
            problem,
        )
    yield from _long_queries()
    export = {"params": {"format": CANARY}}
    for path in ("/ledger/{dataset}", "/ledger/{population}"):
        name = f"export{path}"
        yield Refused(
            name,
            "GET",
            f"{path}/export",
            "invalid-request",
            export,
            "/format",
            "unknown-choice",
        )
        for query, at, problem in (
            ("", "/sequence", "give-sequence-or-from-size"),
            ("?sequence=1&from_size=1", "/sequence", "give-sequence-or-from-size"),
            ("?sequence=9999", "/sequence", "out-of-range"),
            ("?from_size=9999", "/from_size", "out-of-range"),
            ("?sequence=1&size=9999", "/size", "out-of-range"),
        ):
            yield Refused(
                f"proof{path}{query}",
                "GET",
                f"{path}/proofs{query}",
                "invalid-request",
                {},
                at,
                problem,
            )
    artifact = "/models/{model}/artifact"
    yield Refused(
        "artifact",
        "GET",
        artifact,
        "invalid-request",
        export,
        "/format",
        "unknown-choice",
    )
    strange = (
        "nobody",
        "%00",
        "a%00b",
        "%FF",
        "%ED%A0%80",
        "..%2F..%2Fetc",
        "é",
        "%0A",
        "x" * 2_000,
        "%25",
        "' OR 1=1 --",
    )
    for segment in strange:
        for method, path in (
            ("GET", "/datasets/{}"), ("DELETE", "/datasets/{}"), ("GET", "/jobs/{}"), ("DELETE", "/jobs/{}"),
            ("GET", "/jobs/{}/events"), ("GET", "/models/{}"), ("DELETE", "/models/{}"), ("GET", "/models/{}/artifact"),
            ("DELETE", "/keys/{}"), ("GET", "/ledger/{}"), ("GET", "/ledger/{}/entries"), ("GET", "/ledger/{}/export"),
            ("GET", "/populations/{}"), ("GET", "/ledger/{}/checkpoint"), ("GET", "/ledger/{}/proofs?sequence=1"),
        ):  # fmt: skip
            yield Refused(
                f"{method}-{path}-{segment[:12]}",
                method,
                path.format(segment),
                "not-found",
            )
        name, path = f"predict-{segment[:12]}", f"/models/{segment}/predict"
        yield Refused(name, "POST", path, "not-found", {"json": {"rows": []}})
        grant = {"json": {"role": "analyst"}}
        path = f"/datasets/{{dataset}}/grants/{segment}"
        yield Refused(f"grant-{segment[:12]}", "PUT", path, "not-found", grant)
        yield Refused(f"take-{segment[:12]}", "DELETE", path, "not-found")
    yield Refused("patch", "PATCH", "/datasets/{dataset}/rules", "method-not-allowed")
    yield Refused("put", "PUT", "/train", "method-not-allowed", {"json": {}})
    for key in ("", "x" * 201, "with space", "tab\tbed", CANARY + "\xe9"):
        body = {
            "json": training("{dataset}"),
            "headers": {"Idempotency-Key": key.encode("latin-1")},
        }
        name = f"idempotency-key-{key[:12]!r}"
        yield Refused(
            name,
            "POST",
            "/train",
            "invalid-request",
            body,
            "/Idempotency-Key",
            "malformed",
        )
