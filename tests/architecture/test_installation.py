"""Tests that lock files, ``pyproject.toml``, changelog and notice agree, and name no
registry.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tests.support.scripts import loaded

_ROOT = Path(__file__).parents[2]
_CLIENT = _ROOT / "clients" / "python"
_FORESTS = _ROOT / "packages" / "forests"
_VERIFIER = _ROOT / "packages" / "verifier"
_LOCKS = sorted((_ROOT / "requirements").glob("*.lock"))
_PINNED = re.compile(r"^([A-Za-z0-9._-]+)(?:\[[^]]+\])?==([^ ;\\]+)")


def _project() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads(
        (_ROOT / "pyproject.toml").read_text(encoding="utf-8")
    )
    return project


def _pins(lock: str) -> dict[str, Version]:
    text = (_ROOT / "requirements" / f"{lock}.lock").read_text(encoding="utf-8")
    matches = (_PINNED.match(line) for line in text.splitlines())
    return {
        canonicalize_name(match[1]): Version(match[2]) for match in matches if match
    }


def _requirements(lines: list[str]) -> list[Requirement]:
    return [Requirement(line) for line in lines]


def test_each_lock_file_is_renewed_by_the_script(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the build, a release, the service, the tests, and of the programs that long
    tests install apart.
    """
    script, resolved = loaded(_ROOT / "run.py"), []
    monkeypatch.setattr(script.shutil, "which", lambda name: name)
    monkeypatch.setattr(
        script.subprocess, "run", lambda command, **_options: resolved.append(command)
    )
    script._renew_locks()
    written = [
        Path(command[command.index("--output-file") + 1]).stem for command in resolved
    ]
    assert written[0] == "test", "the other locks are bound to its versions"
    assert (
        sorted(written)
        == [path.stem for path in _LOCKS]
        == sorted(["build", "release", "runtime", "test", *script.PROGRAMS])
    )


@pytest.mark.parametrize("path", _LOCKS, ids=lambda path: path.stem)
def test_a_lock_file_contains_pins_and_hashes_only(path: Path) -> None:
    """No host, index or installer option, because the operator decides where packages
    come from.
    """
    hashed = True
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("    --hash=sha256:"):
            assert re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line)
            hashed = True
        else:
            assert hashed, f"no hash before {line}"
            assert _PINNED.match(line), line
            assert "://" not in line
            hashed = False
    assert hashed


def test_the_runtime_lock_is_part_of_the_test_lock() -> None:
    """Tests run with the shipped versions, and one environment serves both commands of
    the README.
    """
    runtime, test = _pins("runtime"), _pins("test")
    assert runtime.items() <= test.items()
    assert len(runtime) < len(test)


def test_build_tools_agree_with_the_other_locks() -> None:
    build, test = _pins("build"), _pins("test")
    assert "hatchling" in build
    assert {
        name: version
        for name, version in build.items()
        if name in test and test[name] != version
    } == {}


@pytest.mark.parametrize("extra", [None, "test"])
def test_every_dependency_is_locked_inside_its_bounds(extra: str | None) -> None:
    project = _project()["project"]
    lines = (
        project["optional-dependencies"][extra] if extra else project["dependencies"]
    )
    pins = _pins(extra or "runtime")
    for requirement in _requirements(lines):
        assert requirement.specifier.contains(
            pins[canonicalize_name(requirement.name)]
        ), requirement.name


def test_every_dependency_has_an_upper_bound() -> None:
    """An installation without the lock must not get an untested major version."""
    project = _project()["project"]
    extras = [
        line for lines in project["optional-dependencies"].values() for line in lines
    ]
    for requirement in _requirements([*project["dependencies"], *extras]):
        assert any(part.operator == "<" for part in requirement.specifier), (
            requirement.name
        )


def test_test_tools_are_not_shipped() -> None:
    """Not psutil, which the tests use and Dask's scheduler and workers need."""
    assert (
        not {"pytest", "hypothesis", "mypy", "ruff", "scikit-learn", "scipy"}
        & _pins("runtime").keys()
    )


def test_the_resolver_s_own_lock_is_not_kept() -> None:
    """The resolver's lock contains addresses of a registry."""
    assert not (_ROOT / "uv.lock").exists()


def test_the_changelog_begins_with_the_declared_version() -> None:
    changelog = (_ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\S+)", changelog, re.MULTILINE)
    assert newest is not None
    assert newest[1] == _project()["project"]["version"]


def test_the_citation_has_the_declared_version() -> None:
    text = (_ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert yaml.safe_load(text)["version"] == _project()["project"]["version"]


def test_the_unit_of_systemd_grants_the_folders_that_it_names() -> None:
    """An account that may not write to its home or cache would fail at its start."""
    path = _ROOT / "deploy" / "systemd" / "grovekeeper.service"
    lines = path.read_text(encoding="utf-8").splitlines()
    unit = dict(line.split("=", 1) for line in lines if line[:1].isalpha())
    places = dict(place.split("=") for place in unit["Environment"].split())

    assert places == {
        "GROVEKEEPER_HOME": f"/var/lib/{unit['StateDirectory']}",
        "XDG_CACHE_HOME": f"/var/cache/{unit['CacheDirectory']}",
    }
    assert unit["ProtectSystem"] == "strict", "everything else is read only"
    assert "MemoryDenyWriteExecute" not in unit, "compiled code would not run"


def test_the_notice_names_the_source_and_the_licence_of_shipped_data() -> None:
    notice = (_ROOT / "NOTICE").read_text(encoding="utf-8")
    for path in (_ROOT / "app").rglob("*.csv.gz"):
        assert path.relative_to(_ROOT).as_posix() in notice
        source = (path.parent / "SOURCE.md").read_text(encoding="utf-8")
        for address in re.findall(r"https://[^\s)]+", source):
            assert address.rstrip(".,") in notice


def _client() -> dict[str, Any]:
    client: dict[str, Any] = tomllib.loads(
        (_CLIENT / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    return client


_ADAPTERS = ("dp-accounting", "mlflow", "opacus", "opendp")
"""Extras of the client whose libraries run from a lock of their own."""


def test_the_bounds_of_the_adapters_are_versions_that_tests_run() -> None:
    for extra in _ADAPTERS:
        pins = _pins(extra)
        for requirement in _requirements(_client()["optional-dependencies"][extra]):
            pin = pins[canonicalize_name(requirement.name)]
            bounds = {it.operator: it.version for it in requirement.specifier}
            assert bounds.keys() == {">=", "<"}, extra
            assert f"{pin}.".startswith(f"{bounds['>=']}."), extra


def test_the_bounds_of_the_client_are_versions_that_tests_run() -> None:
    """The lowest in an environment of their own, the newest in that of the tests."""
    client, lowest, newest = _client(), _pins("client"), _pins("test")
    extras = [
        line
        for extra, lines in client["optional-dependencies"].items()
        if extra not in _ADAPTERS
        for line in lines
    ]
    extras.remove("grovekeeper-verifier[signatures]>=0.1,<1")  # of this repository
    for requirement in _requirements([*client["dependencies"], *extras]):
        name, bounds = (
            canonicalize_name(requirement.name),
            {it.operator: it.version for it in requirement.specifier},
        )
        assert bounds.keys() == {">=", "<"}, name
        assert f"{lowest[name]}.".startswith(f"{bounds['>=']}."), name
        assert requirement.specifier.contains(newest[name]), name


@pytest.mark.parametrize(
    "folder", [_CLIENT, _FORESTS, _VERIFIER], ids=lambda folder: folder.name
)
def test_a_distribution_has_the_version_and_the_licence_of_the_service(
    folder: Path,
) -> None:
    distribution = tomllib.loads(
        (folder / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    service = _project()["project"]
    for name in ("version", "license", "authors", "requires-python"):
        assert distribution[name] == service[name]
    assert (folder / "LICENSE").read_bytes() == (_ROOT / "LICENSE").read_bytes()


def test_the_forests_need_what_the_service_needs_of_the_same_libraries() -> None:
    forests = tomllib.loads((_FORESTS / "pyproject.toml").read_text(encoding="utf-8"))[
        "project"
    ]
    extras = forests["optional-dependencies"]
    service = _project()["project"]
    assert {*forests["dependencies"], *extras["onnx"]} <= set(service["dependencies"])
    assert set(extras["estimators"]) <= set(service["optional-dependencies"]["test"])


def test_the_verifier_needs_the_library_of_the_service_for_signatures() -> None:
    verifier = tomllib.loads(
        (_VERIFIER / "pyproject.toml").read_text(encoding="utf-8")
    )["project"]
    assert "dependencies" not in verifier
    [cryptography] = verifier["optional-dependencies"]["signatures"]
    assert cryptography in _project()["project"]["dependencies"]
