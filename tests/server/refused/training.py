"""Amounts, plans and training requests that break a rule."""

import json
from collections.abc import Iterator

from tests.server.refused.case import CANARY, Refused, training_body
from tests.support.server import declaration, training

AMOUNTS = (
    "-1", "-0", "+1", "0", "0.0", "0e5", "1_0", "1e-9999999", "1e400", "1e999", "NaN", "Infinity", "inf", "", " 1",
    "1 ", "1\n", "０.5", "٣", ".5", "5.", "0x10", "1,5", "1" * 13, "1." + "0" * 19, "true", CANARY, "1\x00",
    -1, -0.5, 0, 0.0, True, False, None, [], {}, ["1"], 10**400, 0.1234567890123456,
)  # fmt: skip
RAW_AMOUNTS = (
    "1e-9999999",
    "1e400",
    "1e9999999999999999999999",
    "-0",
    "1" * 400,
    "0." + "0" * 300 + "1",
)
"""JSON numbers that Python's JSON writer does not produce."""


def amounts() -> Iterator[Refused]:
    for index, value in enumerate(AMOUNTS):
        yield Refused(
            f"epsilon-{index}",
            "POST",
            "/train",
            "invalid-request",
            training_body(epsilon=value),
            "/epsilon",
        )
        body = {"json": declaration(budget={"accountant": "pure", "epsilon": value})}
        yield Refused(
            f"cap-{index}",
            "POST",
            "/datasets",
            "invalid-request",
            body,
            "/budget/epsilon",
        )
    positive = "/epsilon", "not-positive"
    yield Refused(
        "epsilon-zero",
        "POST",
        "/plans",
        "invalid-request",
        training_body(epsilon="0"),
        *positive,
    )
    yield Refused(
        "epsilon-below-zero",
        "POST",
        "/plans",
        "invalid-request",
        training_body(epsilon=-3),
        *positive,
    )
    yield Refused(
        "delta",
        "POST",
        "/plans",
        "invalid-request",
        training_body(delta="1e-6"),
        "/delta",
        "not-for-pure",
    )
    text = json.dumps(training("{dataset}", epsilon=12321))
    for index, number in enumerate(RAW_AMOUNTS):
        body = {
            "content": text.replace("12321", number),
            "headers": {"Content-Type": "application/json"},
        }
        kind = "malformed-request" if "999999999999" in number else "invalid-request"
        yield Refused(f"raw-epsilon-{index}", "POST", "/train", kind, body)


def trainings() -> Iterator[Refused]:
    rules: list[tuple[dict[str, object], str, str]] = [
        ({"algorithm": CANARY}, "/algorithm", "unknown"),
        ({"algorithm": f"mrf{chr(0)}"}, "/algorithm", "unknown"),
        ({"algorithm": None}, "/algorithm", "not-a-string"),
        ({"parameters": {CANARY: 1}}, "/parameters", "unknown-field"),
        ({"parameters": []}, "/parameters", "not-an-object"),
        ({"parameters": None}, "/parameters", "not-an-object"),
        ({"parameters": {"n_estimators": 0}}, "/parameters/n_estimators", "too-small"),
        (
            {"parameters": {"n_estimators": 1_025}},
            "/parameters/n_estimators",
            "too-large",
        ),
        (
            {"parameters": {"n_estimators": 10**300}},
            "/parameters/n_estimators",
            "too-large",
        ),
        (
            {"parameters": {"n_estimators": 2.5}},
            "/parameters/n_estimators",
            "not-an-integer",
        ),
        (
            {"parameters": {"n_estimators": True}},
            "/parameters/n_estimators",
            "not-an-integer",
        ),
        (
            {"parameters": {"n_estimators": CANARY}},
            "/parameters/n_estimators",
            "not-an-integer",
        ),
        ({"parameters": {"max_depth": 17}}, "/parameters/max_depth", "too-large"),
        ({"parameters": {"max_depth": -1}}, "/parameters/max_depth", "too-small"),
        ({"parameters": {"n_bins": 1}}, "/parameters/n_bins", "too-small"),
        (
            {"parameters": {"assignment": CANARY}},
            "/parameters/assignment",
            "unknown-choice",
        ),
        (
            {"parameters": {"assignment": {"a": [CANARY]}}},
            "/parameters/assignment",
            "unknown-choice",
        ),
        ({"scope": {"shard": []}}, "/scope/shard", "no-cell"),
        ({"scope": {"shard": [4]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": [-1]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": [10**50]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": [True]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": [1.5]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": [CANARY]}}, "/scope/shard", "unknown-cell"),
        ({"scope": {"shard": 1}}, "/scope/shard", "not-a-list"),
        ({"scope": {CANARY: [1]}}, "/scope", "unknown-partition"),
        ({"scope": {"shard\x00": [1]}}, "/scope", "unknown-partition"),
        ({"scope": []}, "/scope", "not-an-object"),
        ({CANARY: 1}, "", "unknown-field"),
        ({"dataset": 5}, "/dataset", "not-a-string"),
    ]
    for index, (changes, at, problem) in enumerate(rules):
        for path in ("/plans", "/train"):
            yield Refused(
                f"{path[1:]}-{index}",
                "POST",
                path,
                "invalid-request",
                training_body(**changes),
                at,
                problem,
            )
    names = [
        ("", "too-short"),
        ("x" * 129, "too-long"),
        (f"{CANARY}\x00", "malformed"),
        (5, "not-a-string"),
    ]
    for name, problem in names:
        yield Refused(
            f"train-name-{problem}",
            "POST",
            "/train",
            "invalid-request",
            training_body(name=name),
            "/name",
            problem,
        )
    for reference in (
        "nobody",
        "ds_aaaaaaaaaaaaaaaa",
        "",
        "x\x00",
        "x" * 128,
        "é" * 20,
        "' OR 1=1 --",
    ):
        yield Refused(
            f"train-unknown-{reference[:9]!r}",
            "POST",
            "/train",
            "not-found",
            training_body(dataset=reference),
        )
    yield Refused(
        "plan-name",
        "POST",
        "/plans",
        "invalid-request",
        training_body(name="x"),
        "",
        "unknown-field",
    )
    yield Refused(
        "train-no-rows",
        "POST",
        "/train",
        "no-rows-yet",
        training_body(dataset="{empty}"),
    )
    labels_only = training_body(algorithm="sspe-2", parameters={})
    yield Refused(
        "train-labels-only", "POST", "/train", "adjacency-mismatch", labels_only
    )
    sharded = {"algorithm": "mrf", "parameters": {"structure_share": "1e-9999"}}
    at = "/parameters/structure_share"
    yield Refused(
        "mrf-share-text",
        "POST",
        "/train",
        "invalid-request",
        training_body(**sharded),
        at,
        "not-a-number",
    )
    for value in (2, -0.5, "1.5", None, CANARY, [1]):
        body = training_body(algorithm="mrf", parameters={"structure_share": value})
        yield Refused(
            f"mrf-share-{value}", "POST", "/train", "invalid-request", body, at
        )
