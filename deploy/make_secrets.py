"""Secrets of ``docker-compose.yml``: random passwords and keys, and database addresses,
in ``secrets/``.

``python3 deploy/make_secrets.py [folder]`` needs nothing but Python and never
overwrites a file.
"""

import argparse
import base64
import secrets
import sys
from pathlib import Path


def main(folder: Path) -> None:
    """Write all files; refuse if any of them exists."""
    owner, service = secrets.token_hex(24), secrets.token_hex(24)
    contents = {
        "postgres_password": secrets.token_hex(24),
        "owner_password": owner,
        "service_password": service,
        "migration_url": f"postgresql://grovekeeper_owner:{owner}@database/grovekeeper",
        "database_url": f"postgresql://grovekeeper_service:{service}@database/grovekeeper",
        "admin_key": f"key_first.{secrets.token_urlsafe(32)}",
        "storage_key": base64.b64encode(secrets.token_bytes(32)).decode("ascii"),
    }
    present = [name for name in contents if (folder / name).exists()]
    if present:
        sys.exit(f"{folder} holds {', '.join(present)} already; nothing was written.")
    # Compose mounts each file with its permissions here, for accounts that this machine
    # does not know. So the files are readable, and the folder's permissions exclude
    # other accounts of this machine.
    folder.mkdir(mode=0o700, exist_ok=True)
    folder.chmod(0o700)
    for name, content in contents.items():
        path = folder / name
        path.write_text(content, encoding="ascii")
        path.chmod(0o444)
    print(
        f"Wrote {len(contents)} secrets into {folder}; the first admin key is in {folder / 'admin_key'}."
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    default = Path(__file__).resolve().parents[1] / "secrets"
    parser.add_argument(
        "folder",
        type=Path,
        nargs="?",
        default=default,
        help="default: secrets/ of the project",
    )
    main(parser.parse_args().folder)
