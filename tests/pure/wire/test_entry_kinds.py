"""Answers, pages and the verifier name the kinds of entries of the ledger; the layers
forbid that they share a list.
"""

from typing import get_args

from app.api.pages import ledger as ledger_pages
from app.api.pages import words
from app.ledger.tables import EntryKind
from app.wire.acts import ActKind
from app.wire.ledger import AccountEntryKind
from grovekeeper_verifier import control_export, dataset_export, population_export

KINDS = [kind.value for kind in EntryKind]
OF_ACCOUNTS = KINDS[: KINDS.index("key-made")]
ACTS = ["open", *KINDS[KINDS.index("key-made") :]]


def test_answers_name_the_kinds_of_the_ledger() -> None:
    assert list(get_args(AccountEntryKind)) == OF_ACCOUNTS
    assert set(get_args(ActKind)) == set(ACTS)


def test_pages_and_the_verifier_name_the_kinds_of_the_ledger() -> None:
    assert words._SENTENCES.keys() == control_export._DETAILS.keys() == set(ACTS)
    of_pages = ledger_pages._KINDS
    assert {*of_pages["dataset"], *of_pages["population"]} == set(OF_ACCOUNTS)
    assert of_pages == {
        "dataset": dataset_export._KINDS,
        "population": (*population_export._KINDS,),
    }
