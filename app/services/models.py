"""Serves ``/models`` and the aliases of datasets: shows, downloads and deletes models,
and moves their aliases.
"""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Self

from sqlalchemy.orm import Session

from app.access.grants import (
    NAME_MODEL,
    SEE_BALANCE,
    SEE_DATASET,
    SEE_JOB,
    SEE_MODEL,
    TAKE_MODEL,
    Principal,
    confirm,
    datasets_with,
    names_on_datasets,
)
from app.access.keys import wait_for_revocation
from app.core import json_text, limits
from app.core.errors import (
    ChangedMeanwhile,
    InvalidRequest,
    NotFound,
    RoleMissing,
    TooLarge,
)
from app.core.preconditions import NOTHING, Condition, etag_of, require_unchanged
from app.datasets import catalog
from app.db.database import transaction_time
from app.jobs import queue
from app.jobs.tables import JobPart, JobRow
from app.ledger import control
from app.ledger.tables import EntryKind
from app.registry import models
from app.registry.tables import AliasMoveRow, ReleaseRow
from app.services.authorization import authorized_dataset, write_as
from app.services.guarantees import of_population
from app.services.installation import Installation
from app.services.pagination import PageRequest, page_of
from app.services.predict import addressed_model
from app.services.releases import evaluations
from app.wire.aliases import AliasHistory, AliasList, AliasMove, AliasOut, ListedAlias
from app.wire.models import (
    ComparedModelOut,
    ComparisonOut,
    FeatureUseOut,
    ImportancesOut,
    LeafShareOut,
    ModelList,
    ModelOut,
    ModelSummary,
    TreeNodeOut,
    TreeOut,
)
from app.wire.spending import PriceOut
from grovekeeper_common.json_types import JsonMapping, JsonObject
from grovekeeper_forests import catalogue
from grovekeeper_forests.privacy import guarantees
from grovekeeper_forests.releases.forest import one_tree
from grovekeeper_forests.releases.forest.read import Artifact


@dataclass(frozen=True)
class _Trained:
    """What the job of a model tells: the rows that it read in the model's dataset, the
    leaves of all trees, and who paid, for what.
    """

    part: JobPart
    n_leaves: int
    submitted_by: str
    purpose: str | None

    @classmethod
    def of(cls, job: JobRow) -> Self:
        """Reads a job, without its uploads, which may be thousands."""
        plan = job.task["work"]["plan"]
        n_leaves = plan["n_trees"] << plan["parameters"]["max_depth"]
        part = replace(job.parts[0], epochs=())
        return cls(part, n_leaves, job.submitted_by, job.purpose)


_OF_JOB = (
    "label", "scope", "price", "n_leaves", "purpose", "submitted_by", "submitted_by_name",
)  # fmt: skip

_Listed = tuple[ReleaseRow, _Trained | None]
"""A model, and what its job tells."""


def show_model(
    installation: Installation, principal: Principal, address: str
) -> ModelOut:
    """Shows the card of a model, which is read from its artifact.

    The guarantee is the present one: it follows later changes of the cap, and names a
    population that the dataset joined later.
    """
    with installation.database.read() as session:
        row = addressed_model(session, principal, address, SEE_MODEL)
        artifact = installation.cache.get(row.file)
        facts = artifact.metadata
        guarantee = _guarantee(session, row.dataset_id, facts["guarantee"])
        second = _unlabelled(session, principal, facts)
        addresses = models.addresses_of(session, [row.id]).get(row.id, [])
    return ModelOut.model_validate(
        {
            **row.fields(
                "id", "name", "dataset_name", "job_id", "size_bytes", "created_at"
            ),
            "aliases": addresses,
            "dataset": row.dataset_id,
            "scope": facts.get("scope"),
            "only_answer": facts.get("only_answer"),
            "algorithm": artifact.plan.algorithm,
            "parameters": catalogue.shown_parameters(
                artifact.plan, artifact.schema.label
            ),
            "schema": artifact.schema.to_json(),
            "guarantee": guarantee,
            "receipt": facts["receipt"],
            "event": artifact.plan.event.to_json(),
            "ledger": facts["ledger"],
            "profile_id": facts["profile_id"],
            "unlabelled": second,
            "read_outs": list(artifact.predictor.read_outs),
            "digest": row.file,
        }
    )


def show_importances(
    installation: Installation, principal: Principal, address: str
) -> ImportancesOut:
    """Shows what the trees of a model look at: post-processing of the released artifact
    alone, which differential privacy is closed under, so nothing is charged.
    """
    with installation.database.read() as session:
        row = addressed_model(session, principal, address, SEE_MODEL)
        artifact = installation.cache.get(row.file)
    shares = artifact.use.leaf_shares
    leaves = zip(artifact.schema.label.classes, shares, strict=True)
    return ImportancesOut(
        model=row.id,
        features=_features(artifact),
        leaves=[LeafShareOut(label=label, share=share) for label, share in leaves],
    )


def show_tree(
    installation: Installation, principal: Principal, address: str, number: int
) -> TreeOut:
    """Shows one tree of a model in words: post-processing of the released artifact
    alone, as :func:`show_importances`.

    Raises:
        NotFound: no such model or tree, or the model is not visible to this key.
    """
    with installation.database.read() as session:
        row = addressed_model(session, principal, address, SEE_MODEL)
        artifact = installation.cache.get(row.file)
    forest, schema = artifact.forest, artifact.schema
    n_trees = one_tree.n_shown(forest, schema)
    if number >= n_trees:
        raise NotFound("tree")
    nodes = one_tree.describe(forest, schema, number)
    return TreeOut(
        model=row.id,
        tree=number,
        n_trees=n_trees,
        nodes=[TreeNodeOut(**vars(node)) for node in nodes],
    )


def _features(artifact: Artifact) -> list[FeatureUseOut]:
    """What the trees make of each feature, in declared order."""
    names, use = artifact.schema.feature_names, artifact.use
    importances = use.importances or [None] * len(names)
    return [
        FeatureUseOut(name=name, n_splits=n_splits, importance=importance)
        for name, n_splits, importance in zip(
            names, use.n_splits, importances, strict=True
        )
    ]


def compare_models(
    installation: Installation, principal: Principal, addresses: Sequence[str]
) -> ComparisonOut:
    """Shows models side by side, each to a caller who may predict with it. Reads stored
    releases alone: no number is computed from rows.

    Raises:
        InvalidRequest: fewer than two models, too many, or one of them twice.
        NotFound: one of them does not exist, or is not visible to this key.
    """
    if len(addresses) < 2:
        raise InvalidRequest.at("/others", "too-short")
    if len(addresses) > limits.MAX_MODELS_SIDE_BY_SIDE:
        raise InvalidRequest.at("/others", "too-long")
    with installation.database.read() as session:
        rows = [
            addressed_model(session, principal, address, SEE_MODEL)
            for address in addresses
        ]
        if len({row.id for row in rows}) < len(rows):
            raise InvalidRequest.at("/others", "not-distinct")
        summaries = _summaries(session, principal, _with_jobs(session, rows))
    # one after another: an artifact stays in memory only if the cache keeps it
    compared = [
        _compared(summary, installation.cache.get(summary.digest))
        for summary in summaries
    ]
    parameters = [set(model.parameters.items()) for model in compared]
    same = set.intersection(*parameters)
    for model in compared:
        for name, _ in same:
            del model.parameters[name]
    return ComparisonOut(models=compared)


def _compared(summary: ModelSummary, artifact: Artifact) -> ComparedModelOut:
    return ComparedModelOut(
        **dict(summary),
        parameters=catalogue.shown_parameters(artifact.plan, artifact.schema.label),
        features=_features(artifact),
        receipt=str(artifact.metadata["receipt"]),
    )


def list_models(
    installation: Installation,
    principal: Principal,
    page: PageRequest,
    matching: models.ModelFilter = models.ALL_MODELS,
) -> ModelList:
    """Lists the models of all datasets on which the key may predict, newest first.

    Raises:
        NotFound: the filter names no dataset that the key sees.
    """
    with installation.database.read() as session:
        visible = datasets_with(session, principal, SEE_MODEL)
        if matching.dataset is not None:
            visible = [catalog.listed_id(session, matching.dataset, among=visible)]

        def fetch(limit: int) -> list[_Listed]:
            rows = models.page(
                session,
                dataset_ids=visible,
                before=page.cursor,
                limit=limit,
                matching=matching,
            )
            return _with_jobs(session, rows)

        shown, following = page_of(
            page,
            fetch,
            lambda listed: models.cursor(listed[0]),
            lambda listed: json_text.n_bytes(listed[1] and dict(listed[1].part.scope)),
        )
        return ModelList(models=_summaries(session, principal, shown), next=following)


def _with_jobs(session: Session, rows: Sequence[ReleaseRow]) -> list[_Listed]:
    jobs = queue.several(session, [row.job_id for row in rows])
    trained = {job.id: _Trained.of(job) for job in jobs}
    return [(row, trained.get(row.job_id)) for row in rows]


def _summaries(
    session: Session, principal: Principal, listed: Sequence[_Listed]
) -> list[ModelSummary]:
    ids = [row.id for row, _ in listed]
    addresses = models.addresses_of(session, ids)
    scores = evaluations.newest_scores(session, principal, ids)
    seen = datasets_with(session, principal, SEE_JOB)
    submitters = {(row.dataset_id, it.submitted_by) for row, it in listed if it}
    names = names_on_datasets(session, principal, submitters)
    summaries = []
    for row, trained in listed:
        of_job: JsonObject = dict.fromkeys(_OF_JOB)
        if trained is not None:
            part = trained.part
            of_job |= {
                "label": part.label,
                "scope": dict(part.scope),
                "price": PriceOut.model_validate(part.price),
                "n_leaves": trained.n_leaves,
            }
            if seen is None or row.dataset_id in seen:
                by = trained.submitted_by
                of_job["purpose"] = trained.purpose
                of_job["submitted_by"] = by
                of_job["submitted_by_name"] = names.get((row.dataset_id, by))
        summary = ModelSummary(
            **row.fields("id", "name", "dataset_name", "created_at"),
            aliases=addresses.get(row.id, []),
            dataset=row.dataset_id,
            algorithm=str(row.algorithm),
            **of_job,
            **scores.get(row.id, evaluations.NO_SCORE)._asdict(),
            digest=row.file,
        )
        summaries.append(summary)
    return summaries


def names_of_models(
    installation: Installation, principal: Principal, model_ids: Sequence[str]
) -> dict[str, str]:
    """The names of those models that still exist and that the caller may see, or their
    ids where they have no name.
    """
    names = {}
    with installation.database.read() as session:
        for model_id in model_ids:
            with suppress(NotFound, RoleMissing):
                names[model_id] = (
                    addressed_model(session, principal, model_id, SEE_MODEL).name
                    or model_id
                )
    return names


def take_artifact(
    installation: Installation, principal: Principal, address: str
) -> BinaryIO:
    """Opens the file of a model's artifact."""
    return installation.store.open(_taken(installation, principal, address).file)


def take_onnx(
    installation: Installation,
    principal: Principal,
    address: str,
    *,
    read_out: str | None = None,
) -> BinaryIO:
    """Exports the model for ONNX Runtime, with the artifact's digest, guarantee and
    receipt, to a file without a name.

    Args:
        read_out: a read-out of the algorithm; ``None``: its default.
    """
    # 0.25 s to import, needed by an export only
    from grovekeeper_forests.releases.forest.onnx import model

    row = _taken(installation, principal, address)
    with ExitStack() as closes:
        file = closes.enter_context(installation.spool())
        file.write(
            model.dumps(
                installation.cache.get(row.file), digest=row.file, read_out=read_out
            )
        )
        file.seek(0)
        closes.pop_all()
        return file


def delete_model(
    installation: Installation, principal: Principal, address: str
) -> None:
    """Deletes a model, and its artifact unless another model refers to it. What was
    charged stays charged.
    """
    with write_as(installation, principal) as (session, principal):
        row = addressed_model(session, principal, address, TAKE_MODEL)
        digest = models.remove(session, row.id)
        control.record(
            session,
            EntryKind.MODEL_DELETED,
            actor=principal.key_id,
            dataset=row.dataset_id,
            model=row.id,
        )
        is_needed = models.is_referenced(session, digest)
    wait_for_revocation()
    if not is_needed:
        installation.store.remove(digest)
        installation.cache.forget(digest)


def _taken(
    installation: Installation, principal: Principal, address: str
) -> ReleaseRow:
    with installation.database.read() as session:
        return addressed_model(
            session, confirm(session, principal), address, TAKE_MODEL
        )


def _guarantee(session: Session, dataset_id: str, trained: Any) -> JsonObject:
    """The present guarantee of a model and its account, from the guarantee at the time
    of training.
    """
    account = models.guarantee(session, dataset_id)
    guarantee = trained
    if account is not None:
        guarantee = guarantees.of_output(trained["adds"], account)
    return of_population(guarantee, models.population(session, dataset_id))


def _unlabelled(
    session: Session, principal: Principal, facts: JsonMapping
) -> JsonObject | None:
    """The card's facts about a second dataset, with the present guarantee.

    To a caller who may not see that dataset, the facts state what the model adds for
    its people, and no name.
    """
    second = facts.get("unlabelled")
    if second is None:
        return None
    visible = datasets_with(session, principal, SEE_DATASET)
    if visible is not None and second["dataset"] not in visible:
        names = dict.fromkeys(("dataset", "dataset_name", "ledger"))
        return {**second, **names, "guarantee": {"adds": second["guarantee"]["adds"]}}
    return {
        **second,
        "guarantee": _guarantee(session, second["dataset"], second["guarantee"]),
    }


def put_alias(
    installation: Installation,
    principal: Principal,
    reference: str,
    alias: str,
    *,
    model: str,
    condition: Condition = None,
) -> AliasOut:
    """Makes an alias of a dataset name one of its models from now on. Naming the same
    model again changes nothing.

    Args:
        model: id of the model, or another alias, whose model is then meant.
        condition: on the last move of the alias, if this one changes something or the
            alias has to be new.

    Raises:
        ChangedMeanwhile: the condition does not hold.
        InvalidRequest: the model was trained on another dataset.
        TooLarge: the dataset has too many aliases.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, NAME_MODEL)
        catalog.locked(session, dataset.id)
        row = models.locked(
            session, addressed_model(session, principal, model, SEE_MODEL).id
        )
        if row.dataset_id != dataset.id:
            raise InvalidRequest.at("/model", "of-another-dataset")
        move = models.last_move(session, dataset.id, alias)
        is_new = move is None or move.model_id is None
        if condition == NOTHING and not is_new:
            raise ChangedMeanwhile
        if is_new and models.n_aliases(session, dataset.id) >= limits.MAX_ALIASES:
            raise TooLarge("the number of aliases", limits.MAX_ALIASES)
        if move is None or move.model_id != row.id:
            require_unchanged(
                condition, None if move is None else _etag(move), exists=not is_new
            )
            move = _move(session, dataset, alias, row.id, by=principal)
            control.record(
                session,
                EntryKind.ALIAS_MOVED,
                actor=principal.key_id,
                dataset=dataset.id,
                alias=alias,
                model=row.id,
            )
    wait_for_revocation()
    return AliasOut(**dataset.named, etag=_etag(move), **_facts(move))


def remove_alias(
    installation: Installation,
    principal: Principal,
    reference: str,
    alias: str,
    *,
    condition: Condition = None,
) -> None:
    """Removes an alias. Its moves stay, and it may be used again. Removing an alias
    that does not exist succeeds.

    Raises:
        ChangedMeanwhile: the alias names a model, and the ``condition`` on its last
            move does not hold.
    """
    with write_as(installation, principal) as (session, principal):
        dataset = authorized_dataset(session, principal, reference, NAME_MODEL)
        catalog.locked(session, dataset.id)
        move = models.last_move(session, dataset.id, alias)
        if move is not None and move.model_id is not None:
            require_unchanged(condition, _etag(move))
            _move(session, dataset, alias, None, by=principal)
            control.record(
                session,
                EntryKind.ALIAS_REMOVED,
                actor=principal.key_id,
                dataset=dataset.id,
                alias=alias,
            )
    wait_for_revocation()


def list_aliases(
    installation: Installation, principal: Principal, reference: str, page: PageRequest
) -> AliasList:
    """Lists the aliases of a dataset that name a model, in alphabetical order."""
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_DATASET)
        shown, following = page_of(
            page,
            lambda limit: models.page_of_aliases(
                session, dataset.id, after=page.cursor, limit=limit
            ),
            lambda row: row.alias,
        )
        listed = [ListedAlias(**_facts(row)) for row in shown]
        return AliasList(
            **dataset.named,
            aliases=listed,
            next=following,
        )


def show_alias(
    installation: Installation,
    principal: Principal,
    reference: str,
    alias: str,
    page: PageRequest,
) -> AliasHistory:
    """Shows the model that an alias names, and who moved the alias when, newest first.

    Raises:
        NotFound: no such dataset or alias, or it is not visible to this key.
    """
    with installation.database.read() as session:
        dataset = authorized_dataset(session, principal, reference, SEE_BALANCE)
        last = models.last_move(session, dataset.id, alias)
        if last is None:
            raise NotFound("alias")
        shown, following = page_of(
            page,
            lambda limit: models.moves_of(
                session, dataset.id, alias, before=page.sequence() or None, limit=limit
            ),
            lambda row: str(row.number),
        )
        return AliasHistory(
            **dataset.named,
            alias=alias,
            model_id=last.model_id,
            etag=_etag(last),
            moves=[
                AliasMove(**row.fields("model_id", "moved_by", "moved_at"))
                for row in shown
            ],
            next=following,
        )


def _etag(last: AliasMoveRow) -> str:
    return etag_of(last.dataset_id, last.alias, last.number)


def _move(
    session: Session,
    dataset: catalog.Dataset,
    alias: str,
    model_id: str | None,
    *,
    by: Principal,
) -> AliasMoveRow:
    row = AliasMoveRow(
        dataset_id=dataset.id,
        alias=alias,
        dataset_name=dataset.name,
        model_id=model_id,
        moved_by=by.key_id,
        moved_at=transaction_time(session),
    )
    models.add_move(session, row)
    return row


def _facts(row: AliasMoveRow) -> dict[str, str]:
    assert row.model_id is not None, "the alias names a model"
    return row.fields("alias", "model_id", "moved_at")
