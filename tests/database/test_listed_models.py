"""What the list of models tells of each (its size, its price and its newest released
accuracy), and what the trees of a model look at.
"""

import json
from collections.abc import Sequence

import pytest

from app.access.grants import Principal
from app.access.tables import KeyRow
from app.core.errors import InvalidRequest, NotFound
from app.services import models
from app.services.pagination import PageRequest
from app.services.releases import evaluations
from app.wire.evaluations import EvaluationIn, SelectionIn
from app.wire.models import ComparedModelOut, ModelSummary
from tests.support import job_kinds
from tests.support.asking import submit_evaluation
from tests.support.crash_scene import OWNER, Scene
from tests.support.ruled import SECOND, grant

pytestmark = [pytest.mark.contract, pytest.mark.in_turn("database_url")]

_HELD_OUT = {"epsilon": "0.25", "scope": {"shard": [1, 2]}}


def _evaluated(
    scene: Scene, model_ids: Sequence[str], key: str, **asked: object
) -> str:
    """Evaluates models and returns the id of the evaluation."""
    body = (
        EvaluationIn.model_validate({**_HELD_OUT, **asked})
        if len(model_ids) == 1
        else SelectionIn.model_validate({**_HELD_OUT, **asked, "models": model_ids})
    )
    request = job_kinds.request("POST e", key)
    answer = submit_evaluation(
        scene.installation, OWNER, model_ids, body, request=request
    )
    job_kinds.run(scene)
    return str(scene.job(json.loads(answer.body)["job_id"]).release_id)


def _listed(scene: Scene, by: Principal = OWNER) -> dict[str, ModelSummary]:
    answer = models.list_models(scene.installation, by, PageRequest())
    return {model.id: model for model in answer.models}


def _evaluation_of(scene: Scene, model_id: str, by: Principal = OWNER) -> str | None:
    accuracy = _listed(scene, by)[model_id].accuracy
    return None if accuracy is None else accuracy.evaluation


def test_an_accuracy_says_that_its_rows_were_used_in_training(scene: Scene) -> None:
    model = job_kinds.model(scene, "a")
    evaluation = _evaluated(scene, [model], "1", scope={})
    accuracy = _listed(scene)[model].accuracy
    assert accuracy is not None
    assert accuracy.on_training_rows
    shown = evaluations.show_evaluation(scene.installation, OWNER, evaluation)
    assert shown.accuracy is not None
    assert shown.accuracy.on_training_rows


def test_the_newest_evaluation_that_released_an_accuracy_is_listed(
    scene: Scene,
) -> None:
    measured, other = job_kinds.model(scene, "a"), job_kinds.model(scene, "b")
    assert _evaluation_of(scene, measured) is None
    first = _evaluated(scene, [measured], "1")
    assert _evaluation_of(scene, measured) == first
    second = _evaluated(scene, [measured], "2", metrics=["confusion"])
    _evaluated(scene, [measured], "3", metrics=["auroc"])
    listed = _listed(scene)
    shown = evaluations.show_evaluation(scene.installation, OWNER, second)
    accuracy = listed[measured].accuracy
    assert accuracy is not None
    assert shown.accuracy is not None
    assert (accuracy.evaluation, accuracy.dataset) == (second, scene.dataset_id)
    assert accuracy.model_dump().items() >= shown.accuracy.model_dump().items()
    assert listed[other].accuracy is None
    assert not accuracy.on_training_rows
    assert not shown.accuracy.on_training_rows

    grant(scene, "predictor")
    assert _evaluation_of(scene, measured, SECOND) is None, (
        "who may not train does not see evaluations"
    )
    grant(scene, "analyst")
    assert _evaluation_of(scene, measured, SECOND) == second


def test_of_a_choice_the_best_alone_has_an_accuracy(scene: Scene) -> None:
    model_ids = [job_kinds.model(scene, key) for key in "abc"]
    chosen = _evaluated(scene, model_ids, "1", winner_accuracy=True)
    best = evaluations.show_evaluation(scene.installation, OWNER, chosen).best
    for model_id in model_ids:
        expected = chosen if model_id == best else None
        assert _evaluation_of(scene, model_id) == expected


def test_a_model_states_its_leaves_and_the_epsilon_of_its_price(scene: Scene) -> None:
    model_id = job_kinds.model(scene, "a")
    listed = _listed(scene)[model_id]
    assert listed.n_leaves == 2 * 2**2, "two trees of two levels"
    assert listed.price is not None
    assert listed.price.epsilon == "0.01"


def test_a_model_says_who_paid_and_why_to_callers_who_may_see_its_job(
    scene: Scene,
) -> None:
    answer = scene.submit(key="a", purpose="compare with last year")
    job_kinds.run(scene)
    model_id = str(scene.job(json.loads(answer.body)["job_id"]).release_id)

    def told(by: Principal) -> tuple[str | None, ...]:
        model = _listed(scene, by)[model_id]
        return (model.submitted_by, model.submitted_by_name, model.purpose)

    with scene.installation.database.read() as session:
        name = session.get_one(KeyRow, OWNER.key_id).name
    assert told(OWNER) == (OWNER.key_id, name, "compare with last year")
    grant(scene, "analyst")
    assert told(SECOND) == (OWNER.key_id, None, "compare with last year")
    grant(scene, "predictor")
    assert told(SECOND) == (None, None, None)


def test_importances_charge_nothing(scene: Scene) -> None:
    model_id = job_kinds.model(scene, "a")
    before = scene.export()
    shown = models.show_importances(scene.installation, OWNER, model_id)
    assert scene.export() == before
    assert (shown.model, [feature.name for feature in shown.features]) == (
        model_id,
        ["age"],
    )
    assert shown.features[0].n_splits >= 2, "the root of each tree"
    assert shown.features[0].importance in (0.0, 1.0)
    assert [leaf.label for leaf in shown.leaves] == ["low", "high"]
    grant(scene, "predictor")
    again = models.show_importances(scene.installation, SECOND, model_id)
    assert again == shown
    with pytest.raises(NotFound):
        models.show_importances(scene.installation, Principal("key_other"), model_id)


def test_models_side_by_side_show_what_differs(scene: Scene) -> None:
    first = job_kinds.model(scene, "a")
    answer = scene.submit(key="b", epsilon="0.02", scope={"shard": [1]}, max_depth=1)
    job_kinds.run(scene)
    second = str(scene.job(json.loads(answer.body)["job_id"]).release_id)
    evaluated = _evaluated(scene, [second], "1")
    before = scene.export()

    def compared(*addresses: str, by: Principal = OWNER) -> list[ComparedModelOut]:
        return models.compare_models(scene.installation, by, addresses).models

    one, other = compared(first, second)
    assert scene.export() == before, "nothing is charged"
    assert (one.id, other.id) == (first, second)
    assert (one.parameters, other.parameters) == ({"max_depth": 2}, {"max_depth": 1})
    assert one.accuracy is None
    assert other.accuracy is not None
    assert other.accuracy.evaluation == evaluated
    assert [model.price and model.price.epsilon for model in (one, other)] == [
        "0.01",
        "0.02",
    ]
    assert one.receipt == models.show_model(scene.installation, OWNER, first).receipt
    shown = models.show_importances(scene.installation, OWNER, second)
    assert other.features == shown.features

    grant(scene, "predictor")
    seen = compared(second, first, by=SECOND)
    assert [model.id for model in seen] == [second, first]
    assert seen[0].accuracy is None
    for wrong, problem in (
        ([first], "too-short"),
        ([first, first], "not-distinct"),
        ([f"md_{number}" for number in range(9)], "too-long"),
    ):
        with pytest.raises(InvalidRequest) as refused:
            compared(*wrong)
        assert refused.value.errors[0].problem == problem
    for caller, addresses in (
        (Principal("key_other"), [first, second]),
        (OWNER, [first, "md_unknown"]),
    ):
        with pytest.raises(NotFound):
            compared(*addresses, by=caller)


def test_a_later_look_at_training_rows_does_not_hide_what_held_out_rows_showed(
    scene: Scene,
) -> None:
    model = job_kinds.model(scene, "a")
    first = _evaluated(scene, [model], "1")
    assert _evaluation_of(scene, model) == first
    _evaluated(scene, [model], "2", scope={})
    assert _evaluation_of(scene, model) == first
    last = _evaluated(scene, [model], "3")
    assert _evaluation_of(scene, model) == last
