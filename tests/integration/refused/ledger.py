"""Changes of caps that break a rule."""

from collections.abc import Iterator

from tests.integration.refused.case import CANARY, MISSING, Refused, changed
from tests.integration.refused.training import AMOUNTS

CAP = "/ledger/{dataset}/cap"


def caps() -> Iterator[Refused]:
    legal = {"cap": "1", "reason": "a reason"}
    rules: list[tuple[str, object, str, str]] = [
        ("/reason", "", "/reason", "too-short"),
        ("/reason", "x" * 501, "/reason", "too-long"),
        ("/reason", "   ", "/reason", "malformed"),
        ("/reason", f"{CANARY}\n", "/reason", "malformed"),
        ("/reason", f"{CANARY}\x1b[2J", "/reason", "malformed"),
        ("/reason", 5, "/reason", "not-a-string"),
        ("/reason", MISSING, "/reason", "required"),
        ("/cap", MISSING, "/cap", "required"),
        ("/cap", "100", "/cap", "unchanged"),
        ("/cap", "1e-10", "/cap", "too-small"),
        ("/cap", "1000000001", "/cap", "too-large"),
        ("/cap", {"epsilon": "1"}, "/cap", "not-an-amount"),
        (f"/{CANARY}", 1, "", "unknown-field"),
        ("/delta", "1e-6", "", "unknown-field"),
    ]
    for index, (pointer, value, at, problem) in enumerate(rules):
        options = {"json": changed(legal, pointer, value)}
        yield Refused(f"cap-{index}", "POST", CAP, "invalid-request", options, at, problem)
    for index, value in enumerate(AMOUNTS):
        options = {"json": legal | {"cap": value}}
        yield Refused(f"cap-amount-{index}", "POST", CAP, "invalid-request", options, "/cap")
    for reference in ("nobody", "ds_aaaaaaaaaaaaaaaa"):
        yield Refused(f"cap-of-{reference}", "POST", f"/ledger/{reference}/cap", "not-found", {"json": legal})
