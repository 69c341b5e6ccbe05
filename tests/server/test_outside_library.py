"""The worked example with an external library, run against a real server as its users
run it.
"""

import subprocess
import sys
from pathlib import Path

from grovekeeper_verifier.dataset_replay import verify
from tests.support.databases import on_one_server
from tests.support.server import Server

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "outside_library.py"


@on_one_server
def test_it_reserves_first_runs_afterwards_and_stops_where_the_budget_ends(
    server: Server, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(server.admin.key)
    name = f"outside-{tmp_path.name}"[:60]
    command = [
        sys.executable,
        str(EXAMPLE),
        "--url",
        server.url,
        "--key-file",
        "key",
        "--dataset",
        name,
    ]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert (
        lines[0]
        == "a mean costs 0.5 ε here; OpenDP itself says 0.500000; 1.25 ε are left"
    )
    means = [float(line.rpartition(" ")[2]) for line in lines[1:-1]]
    assert len(means) == 2, "two halves fit into 1.25, and a third does not"
    assert all(45 < mean < 63 for mean in means), (
        "5,000 ages from 18 to 90, and a little noise"
    )
    assert lines[-1].endswith("0.25 ε left for dataset " + name + "; no row was read")
    balance = server.admin.http.get(f"/ledger/{name}").json()
    assert (balance["charged"], balance["reserved"], balance["remaining"]) == (
        "1",
        "0",
        "0.25",
    )
    listed = server.admin.http.get(f"/ledger/{name}/reservations").json()[
        "reservations"
    ]
    assert {each["attested_by"] for each in listed} == {server.admin.id}
    assert all(f"paid by {each['reservation_id']}: " in done.stdout for each in listed)
    export = server.admin.http.get(f"/ledger/{name}/export").content
    assert verify(export.splitlines(keepends=True)).kinds == {
        "open": 1,
        "reserve": 2,
        "charge": 2,
    }
