"""The sources of the service, of what its client has in common with it, and of the
forests, which is the code that reads private rows.
"""

from pathlib import Path

ROOT = Path(__file__).parents[2]
_PACKAGES = (
    ROOT / "app",
    ROOT / "clients" / "python" / "grovekeeper_common",
    ROOT / "packages" / "forests" / "grovekeeper_forests",
)


def sources() -> list[Path]:
    """Every module of these packages."""
    return sorted(path for package in _PACKAGES for path in package.rglob("*.py"))


def name_of(path: Path) -> str:
    """The path of a module from the folder that its package is in."""
    (package,) = (package for package in _PACKAGES if path.is_relative_to(package))
    return path.relative_to(package.parent).as_posix()


def file_of(name: str) -> Path:
    """Inverse of :func:`name_of`."""
    (package,) = (
        package for package in _PACKAGES if name.startswith(f"{package.name}/")
    )
    return package.parent / name
