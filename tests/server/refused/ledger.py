"""Cap changes and charges for external mechanisms that break a rule."""

from collections.abc import Iterator

from tests.server.refused.case import CANARY, MISSING, Refused, changed
from tests.server.refused.training import AMOUNTS

EXTERNAL = ("/ledger/{dataset}/quotes", "/ledger/{dataset}/reservations")
LEAF = {
    "type": "discrete-laplace/1", "adjacency": "add_remove", "l1_sensitivity": "1", "inverse_scale": "1/2",
    "coordinates": 1,
}  # fmt: skip
CAPS = ("/ledger/{dataset}/cap", "/ledger/{population}/cap")


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
    for path in CAPS:
        for index, (pointer, value, at, problem) in enumerate(rules):
            options = {"json": changed(legal, pointer, value)}
            yield Refused(
                f"{path[8:12]}-cap-{index}",
                "POST",
                path,
                "invalid-request",
                options,
                at,
                problem,
            )
        for index, value in enumerate(AMOUNTS):
            options = {"json": legal | {"cap": value}}
            yield Refused(
                f"{path[8:12]}-cap-amount-{index}",
                "POST",
                path,
                "invalid-request",
                options,
                "/cap",
            )
    for reference in ("nobody", "ds_aaaaaaaaaaaaaaaa", "pop_aaaaaaaaaaaaaaaa"):
        path = f"/ledger/{reference}/cap"
        yield Refused(f"cap{path}", "POST", path, "not-found", {"json": legal})


def external() -> Iterator[Refused]:
    declared = {"adjacency": "add_remove", "epsilon": "0.5"}
    legal = {"description": "a mean", "per": "row", "declared": declared}
    by_event = {"description": "a mean", "per": "row", "event": LEAF}
    rules: list[tuple[object, str, object, str, str]] = [
        (legal, "/description", f"{CANARY}\n", "/description", "malformed"),
        (legal, "/description", MISSING, "/description", "required"),
        (legal, "/per", CANARY, "/per", "unknown-choice"),
        (legal, "/per", "unit", "/per", "no-unit-column"),
        (legal, "/declared", MISSING, "", "event-or-declared"),
        (legal, "/event", LEAF, "", "event-or-declared"),
        (legal, "/declared/rho", "1", "/declared", "one-of-epsilon-rho-mu"),
        (legal, "/declared/epsilon", MISSING, "/declared", "one-of-epsilon-rho-mu"),
        (legal, "/declared/epsilon", 0, "/declared/epsilon", "not-positive"),
        (legal, "/declared/delta", "1", "/declared", "delta-not-below-one"),
        (legal, "/declared/adjacency", CANARY, "/declared/adjacency", "unknown-choice"),
        (
            legal,
            "/declared/adjacency",
            "replace_one",
            "/declared/adjacency",
            "other-adjacency",
        ),
        (
            legal,
            "/declared/adjacency",
            "label",
            "/declared/adjacency",
            "other-adjacency",
        ),
        (legal, f"/declared/{CANARY}", 1, "/declared", "unknown-field"),
        (legal, f"/{CANARY}", 1, "", "unknown-field"),
        (legal, "/scope", {"shard": [9]}, "/scope/shard", "unknown-cell"),
        (legal, "/scope", {CANARY: [0]}, "/scope", "unknown-partition"),
        (by_event, "/event", {"type": CANARY}, "/event", "unknown-event"),
        (by_event, "/event", {}, "/event", "unknown-event"),
        (by_event, "/event", [], "/event", "not-an-object"),
        (by_event, "/event/type", "discrete-gaussian/1", "/event", "unknown-event"),
        (by_event, "/event/adjacency", "replace_one", "/event", "other-adjacency"),
        (by_event, "/event/adjacency", CANARY, "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", "0", "/event", "costs-nothing"),
        (by_event, "/event/inverse_scale", "2/4", "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", "1/0", "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", "-1", "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", "1e999999999", "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", 0.5, "/event", "unknown-event"),
        (by_event, "/event/inverse_scale", "1" * 61, "/event", "unknown-event"),
        (by_event, "/event/coordinates", 10**13, "/event", "unknown-event"),
        (by_event, "/event/coordinates", True, "/event", "unknown-event"),
        (by_event, "/event/coordinates", 1.5, "/event", "unknown-event"),
        (by_event, f"/event/{CANARY}", 1, "/event", "unknown-event"),
        (
            by_event,
            "/event",
            _sequential(LEAF, times=10**13),
            "/event",
            "unknown-event",
        ),
        (by_event, "/event", _sequential(LEAF, times=0), "/event", "unknown-event"),
        (by_event, "/event", _sequential(*[LEAF] * 200), "/event", "unknown-event"),
        (by_event, "/event", _sequential(), "/event", "costs-nothing"),
        (
            by_event,
            "/event",
            _sequential(LEAF) | {"type": "parallel/1", "over": CANARY + "\n"},
            "/event",
            "unknown-event",
        ),
    ]
    for path in EXTERNAL:
        for index, (body, pointer, value, at, problem) in enumerate(rules):
            assert isinstance(body, dict)
            options = {"json": changed(body, pointer, value)}
            yield Refused(
                f"{path[-6:]}-{index}",
                "POST",
                path,
                "invalid-request",
                options,
                at,
                problem,
            )
        for name in ("rho", "mu"):
            unpure = {
                "json": legal | {"declared": {"adjacency": "add_remove", name: "0.1"}}
            }
            yield Refused(
                f"{path[-6:]}-{name}", "POST", path, "accountant-mismatch", unpure
            )
    too_much = {"json": legal | {"declared": declared | {"epsilon": "100.000000001"}}}
    yield Refused("external-too-much", "POST", EXTERNAL[1], "budget-exceeded", too_much)
    no_key = {"json": legal, "headers": {"Idempotency-Key": ""}}
    yield Refused(
        "external-key",
        "POST",
        EXTERNAL[1],
        "invalid-request",
        no_key,
        "/Idempotency-Key",
        "malformed",
    )
    for name in ("rs_aaaaaaaaaaaaaaaa", "nobody", "x%00", "x" * 100):
        yield Refused(f"show-{name[:9]}", "GET", f"{EXTERNAL[1]}/{name}", "not-found")


def _sequential(*leaves: object, times: int = 1) -> dict[str, object]:
    return {
        "type": "sequential/1",
        "parts": [{"times": times, "event": leaf} for leaf in leaves],
    }
