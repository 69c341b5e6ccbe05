"""Tests the rules of the address of a Dask cluster: TLS with a certificate beyond this
machine, or nothing.
"""

from pathlib import Path

import dask
import pytest

from app.core.dask_cluster import DaskCluster
from app.core.errors import InstallationError
from app.core.settings import Settings
from app.services.drawing.dask_fleet import security_of

FILES = {
    f"GROVEKEEPER_DASK_{kind}_FILE": f"/run/secrets/{kind}.pem"
    for kind in ("CA", "CERT", "KEY")
}


def cluster(address: str, **files: str) -> DaskCluster | None:
    return Settings.from_environment(
        {"GROVEKEEPER_DASK_SCHEDULER": address, **files}
    ).dask_cluster


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "localhost", "[::1]"])
def test_plain_tcp_is_accepted_on_loopback(host: str) -> None:
    found = cluster(f"tcp://{host}:8786")
    assert found is not None
    assert not security_of(found).require_encryption


@pytest.mark.parametrize(
    "host",
    ["10.0.0.5", "0.0.0.0", "[::]", "scheduler", "localhost.example", "128.0.0.1"],
)
def test_plain_tcp_is_refused_beyond_this_machine(host: str) -> None:
    with pytest.raises(
        InstallationError, match="beyond this machine, a scheduler needs TLS"
    ):
        cluster(f"tcp://{host}:8786")


@pytest.fixture
def certificates(tmp_path: Path) -> dict[str, str]:
    files = {variable: tmp_path / Path(path).name for variable, path in FILES.items()}
    for file in files.values():
        file.touch()
    return {variable: str(file) for variable, file in files.items()}


def test_tls_encrypts_and_shows_a_certificate_in_every_role(
    certificates: dict[str, str],
) -> None:
    found = cluster("tls://10.0.0.5:8786", **certificates)
    assert found is not None
    assert str(found.ca_file) == certificates["GROVEKEEPER_DASK_CA_FILE"]
    security = security_of(found)
    assert security.require_encryption
    for role in ("scheduler", "worker", "client"):
        of_role = security.get_tls_config_for_role(role)
        assert [of_role[name] for name in ("ca_file", "cert", "key")] == list(
            certificates.values()
        )


@pytest.mark.parametrize("required", [False, True])
def test_what_a_machine_configures_for_dask_decides_about_no_encryption(
    required: bool, certificates: dict[str, str]
) -> None:
    here = cluster("tcp://127.0.0.1:8786")
    beyond = cluster("tls://10.0.0.5:8786", **certificates)
    assert here is not None
    assert beyond is not None
    with dask.config.set({"distributed.comm.require-encryption": required}):
        assert not security_of(here).require_encryption
        assert security_of(beyond).require_encryption


@pytest.mark.parametrize("variable", FILES)
def test_a_file_that_is_missing_is_refused_at_the_start(
    variable: str, certificates: dict[str, str]
) -> None:
    Path(certificates[variable]).unlink()
    with pytest.raises(
        InstallationError, match=f"the file that {variable} names cannot be read"
    ):
        cluster("tls://10.0.0.5:8786", **certificates)


@pytest.mark.parametrize("missing", FILES)
def test_tls_needs_every_file(missing: str) -> None:
    with pytest.raises(InstallationError, match="needs three files"):
        cluster(
            "tls://127.0.0.1:8786",
            **{name: path for name, path in FILES.items() if name != missing},
        )


@pytest.mark.parametrize(
    "address",
    [
        "10.0.0.5:8786", "http://10.0.0.5:8786", "tls://10.0.0.5", "inproc://1/2", "tls://:1", "tls://10.0.0.5:SECRET",
        "tls://u:SECRET@10.0.0.5:8786", "tls://10.0.0.5:8786/SECRET", "tls://10.0.0.5:8786?SECRET", "tls://[SECRET",
    ],
)  # fmt: skip
def test_another_address_is_refused_and_not_shown(address: str) -> None:
    with pytest.raises(
        InstallationError, match="not the address of a scheduler"
    ) as raised:
        cluster(address, **FILES)
    assert "SECRET" not in str(raised.value)


def test_certificates_without_tls_are_refused() -> None:
    with pytest.raises(InstallationError, match="an address without TLS none"):
        cluster("tcp://127.0.0.1:8786", **FILES)
