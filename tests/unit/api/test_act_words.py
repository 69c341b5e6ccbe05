"""Administrative acts as sentences."""

from typing import get_args

from app.api.pages.words import act_in_words
from app.wire.ledger import ActKind, ActOut


def test_every_kind_of_act_has_a_sentence() -> None:
    details = {
        "key": "key_a", "roles": ["owner"], "role": "owner", "dataset": "ds_a", "datasets": ["ds_a"], "upload": "up_a",
        "account": "ds_a", "sequence": 2, "population": "pp_a", "verifier_key": "a+b+c", "storage_key": "sk_a",
        "rules": {"largest_job": None, "approval_above": None, "quotas": [], "frozen": False, "erase_rows_at": None},
        "proposed_by": "key_b", "job": "jb_a", "reason": "<b>", "entries": 3, "alias": "production", "model": "md_a",
        "webhook": "wh_a",
    }  # fmt: skip
    shared = {"sequence": 1, "amount": "0", "scope": {}, "event": None, "job_id": None, "actor": "key_a", "at": "x"}
    for kind in get_args(ActKind):
        act = ActOut.model_validate({**shared, "kind": kind, "previous_hash": "", "hash": "", "details": details})
        words = act_in_words(act, {"key_a": "<script>"})
        assert words.endswith(".") or "Reason: &lt;b&gt;" in words, kind
        assert "<script>" not in words
