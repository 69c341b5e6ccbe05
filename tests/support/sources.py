"""The sources of the service, of what its client has in common with it, of the commands
of the client, and of the forests. The service and the forests read private rows.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
_CLIENT = ROOT / "clients" / "python"
_ABOVE = {
    "app": ROOT,
    "grovekeeper_client/cli": _CLIENT,
    "grovekeeper_common": _CLIENT,
    "grovekeeper_forests": ROOT / "packages" / "forests",
}
"""The folder from which the modules of a package have their names."""


def sources() -> list[Path]:
    """Every module of these packages."""
    folders = (above / package for package, above in _ABOVE.items())
    return sorted(path for folder in folders for path in folder.rglob("*.py"))


def name_of(path: Path) -> str:
    """The path of a module from the folder that its package is in."""
    (above,) = (
        above
        for package, above in _ABOVE.items()
        if path.is_relative_to(above / package)
    )
    return path.relative_to(above).as_posix()


def file_of(name: str) -> Path:
    """Inverse of :func:`name_of`."""
    (above,) = (
        above for package, above in _ABOVE.items() if name.startswith(f"{package}/")
    )
    return above / name
