"""Tests that every effect of a request happens in a transaction that has read the
caller's authority.

``app.services.authorization.write_as`` opens such a transaction, and ``spending`` that
of a request which spends. Every other write transaction belongs to the service itself,
and stands in a list here.
"""

import ast
from pathlib import Path

_ROOT = Path(__file__).parents[2]
OF_CALLERS = {
    ("app/services/authorization.py", "write_as"),
    ("app/services/spending/spend.py", "spending"),
}
OF_THE_SERVICE = {
    # the first admin key, and the operator's command on the installation
    ("app/services/keys.py", "ensure_first_admin"),
    ("app/services/keys.py", "create_admin"),
    # the hours in which keys were used, noted by requests
    ("app/services/keys.py", "record_uses"),
    # the subject of a token, before the request begins: its row and the roles of its
    # newest token
    ("app/services/authorization.py", "_subject"),
    # the installation's signing key, at the first start and by the operator's command
    ("app/services/ledger/heads.py", "_pin"),
    # the operator's command that replaces the storage key
    ("app/services/ledger/heads.py", "rewrap_data_keys"),
    # workers; charge_claimed reads the authority of the submitter
    ("app/services/execution/run_job.py", "claim_next"),
    ("app/services/execution/charge.py", "charge_claimed"),
    ("app/services/execution/charge.py", "charged_task"),
    ("app/services/execution/lease.py", "heartbeat"),
    ("app/services/execution/run_job.py", "give_back"),
    ("app/services/execution/run_job.py", "put_back"),
    ("app/services/execution/run_job.py", "end_as_failed"),
    ("app/services/execution/run_job.py", "register"),
    # which worker processes live
    ("app/worker/main.py", "_seen"),
    ("app/worker/main.py", "note"),
    # dates of erasure, which owners set
    ("app/services/datasets/erase.py", "_is_deleted_now"),
    # jobs of a deleted dataset, after the deletion was committed
    ("app/services/datasets/erase.py", "_n_ended"),
    ("app/services/datasets/erase.py", "end_jobs"),
    # deliveries, which read the authority of the webhook's owner, and a refusal, after
    # the caller's transaction ended
    ("app/services/webhooks.py", "_held"),
    ("app/services/webhooks.py", "_deliver"),
    # earlier secrets of webhooks, whose overlap has ended
    ("app/services/webhooks.py", "_due"),
    ("app/services/jobs/notices.py", "refused"),
    # the sweeper
    ("app/services/execution/sweep.py", "_settle"),
}


def _writers(source: str) -> set[str]:
    """The functions that open a write transaction: ``….database.write()`` or
    ``database.write()``.
    """
    return {
        function.name
        for function in ast.walk(ast.parse(source))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Attribute)
        and node.attr == "write"
        and "database" in ast.unparse(node.value)
    }


def test_only_these_functions_open_a_write_transaction() -> None:
    writers = {
        (str(path.relative_to(_ROOT)), function)
        for path in (_ROOT / "app").rglob("*.py")
        for function in _writers(path.read_text(encoding="utf-8"))
    }
    assert writers == OF_CALLERS | OF_THE_SERVICE


def test_the_check_finds_every_form_of_a_write_transaction() -> None:
    assert _writers("def a():\n    with here.database.write() as session: pass") == {
        "a"
    }
    assert _writers("def b():\n    begin = self._database.write") == {"b"}
    assert (
        _writers("def c(file, database):\n    file.write(b''), database.read()")
        == set()
    )
