"""Reads the settings of a process from environment variables and command-line flags.

:data:`SETTINGS` is the table of all settings; ``python -m app.core.settings`` prints it
as ``docs/settings.md``. A flag takes precedence over the variable of the same name. A
secret may come from a file: ``GROVEKEEPER_ADMIN_KEY_FILE``.
"""

import importlib.util
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import quote, urlsplit

from app.core import limits
from app.core.dask_cluster import DaskCluster
from app.core.errors import InstallationError
from grovekeeper_common import strict_json
from grovekeeper_common.secret_files import read_secret

PREFIX = "GROVEKEEPER_"
GlobalRole = Literal["admin", "owner", "auditor"]
GLOBAL_ROLES: tuple[GlobalRole, ...] = get_args(GlobalRole)
"""Roles that take effect without a grant."""
_CONTACT = re.compile(r"(mailto:[!-~]+@[!-~]+|https://[!-~]+)")
_PATH_PREFIX = re.compile(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+")
"""Names of the unreserved characters of RFC 3986; browsers remove the names ``.`` and
``..``.
"""
LOG_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR")


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        name: attribute of :class:`Settings`; the variable is :data:`PREFIX` and this
            name in capitals.
        default: the default as text for people; empty if there is none.
        meaning: the setting's meaning and range, in sentences.
        read: converts the variable's text to a value; raises ``ValueError``.
        secret: whether the setting may be read from a file (``_FILE``) and is never
            shown.
        worker: whether a worker process needs the setting; ``serve`` passes these and
            no others to its workers.
    """

    name: str
    default: str
    meaning: str
    read: Callable[[str], object]
    secret: bool
    worker: bool

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"{PREFIX}{self.name.upper()}"


def _read_path(text: str) -> Path:
    try:
        return Path(text).expanduser().absolute()
    except RuntimeError as error:  # neither HOME nor an entry in passwd
        raise ValueError("this account has no home folder") from error


def _default_home() -> Path:
    try:
        return _read_path("~/.grovekeeper")
    except ValueError:
        raise InstallationError(
            f"this account has no home folder: set {PREFIX}HOME"
        ) from None


def _read_location(text: str) -> str | Path:
    """An address whose answer nobody between can change, or a file."""
    if "://" not in text:
        return _read_path(text)
    if not _is_address(text):
        raise ValueError("not an address with TLS")
    return text


def _is_address(text: str) -> bool:
    """Whether a text is an address with TLS, or one on this machine."""
    try:
        address = urlsplit(text)
    except ValueError:  # an unclosed bracket
        return False
    is_here = address.scheme == "http" and address.hostname in (
        "127.0.0.1",
        "::1",
        "localhost",
    )
    return bool(address.hostname) and (address.scheme == "https" or is_here)


def _read_endpoint(text: str) -> str:
    if urlsplit(text).scheme not in ("http", "https") or not urlsplit(text).hostname:
        raise ValueError("not an address")
    return text


def _read_contact(text: str) -> str:
    if not _CONTACT.fullmatch(text):
        raise ValueError("not an address of mail or of a page")
    return text


def _read_networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    if text == "none":
        return ()
    return tuple(ip_network(word.strip()) for word in text.split(","))


def _read_roles(text: str) -> dict[str, str]:
    roles = strict_json.loads(text.encode("utf-8"))
    if not isinstance(roles, dict) or not all(
        role in GLOBAL_ROLES for role in roles.values()
    ):
        raise ValueError("not an object of roles")
    return roles


def _setting(
    default: str,
    meaning: str,
    read: Callable[[str], object] = str,
    *,
    worker: bool = False,
    secret: bool = False,
    is_required: bool = False,
) -> Any:
    """A field of :class:`Settings`, with the facts of its :class:`Setting`; without a
    default it is ``None``.
    """
    facts = {
        "default": default,
        "meaning": meaning,
        "read": read,
        "worker": worker,
        "secret": secret,
    }
    if is_required:
        return field(repr=not secret, metadata=facts)
    return field(
        default_factory=lambda: read(default) if default else None,
        repr=not secret,
        metadata=facts,
    )


@dataclass(frozen=True)
class Settings:
    """The settings of one process; :data:`SETTINGS` documents them.

    Raises:
        InstallationError: a value is outside its range.
    """

    home: Path = _setting(
        "~/.grovekeeper",
        "Folder of the embedded database, the rows, the artifacts and the generated keys. It may hold other files.",
        _read_path,
        worker=True,
        is_required=True,
    )
    database_url: str = _setting(
        "sqlite:///<home>/grovekeeper.sqlite3",
        "Address of the database that the service uses: `sqlite:///<file>` or `postgresql://…`.",
        secret=True,
        worker=True,
        is_required=True,
    )
    store: str | None = _setting(
        "",
        "Address of the object store for rows, artifacts and heads, which machines of one installation share: "
        "`s3://bucket/prefix`, `gs://…`, `az://…`, without user, password or query. Credentials come from the "
        "provider's usual variables. Needs the extra `objectstore`, and a storage key that exists. When unset, they "
        "are in the home.",
        worker=True,
    )
    migration_url: str | None = _setting(
        "",
        "Address for `grovekeeper db upgrade`, as the PostgreSQL role that owns the tables. "
        "When unset, `GROVEKEEPER_DATABASE_URL` is used.",
        secret=True,
    )
    admin_key: str | None = _setting(
        "",
        "The first admin key, `<id>.<secret>`. When unset, `serve` generates one on its first start.",
        secret=True,
    )
    workers: int = _setting(
        "1",
        "Worker processes that `serve` starts, 0 to 256; 0 leaves jobs to other machines.",
        int,
    )
    host: str = _setting(
        "127.0.0.1",
        "Address that the API listens on. A proxy provides TLS.",
    )
    port: int = _setting(
        "8731",
        "Port that the API listens on; 0 picks a free one.",
        int,
    )
    path_prefix: str | None = _setting(
        "",
        "Path below which a reverse proxy serves the service, and which it removes from requests: `/grovekeeper` for "
        "`https://host/grovekeeper/`. Links, redirects and `Location` begin with it. At most "
        f"{limits.MAX_PATH_PREFIX_CHARS} characters.",
    )
    lease_ttl_s: int = _setting(
        str(limits.LEASE_TTL_S),
        "Seconds without a heartbeat after which a worker loses its job, 3 to 3,600. It loses a paid "
        "job only after as long again, in which the database answers.",
        int,
        worker=True,
    )
    poll_interval_s: float = _setting(
        "0.5",
        "Seconds between an idle worker's looks for a job, 0.01 to 60.",
        float,
        worker=True,
    )
    release_interval_s: int = _setting(
        "0",
        "Seconds between the public times at which workers claim jobs, and charges, progress and results appear, 1 to "
        "86,400 (see docs/guides/operator-install.md); 0 shows all of them at once.",
        int,
        worker=True,
    )
    webhook_networks: tuple[IPv4Network | IPv6Network, ...] = _setting(
        "none",
        "Networks that webhooks may reach although they are not public, also without TLS, separated by commas: "
        "`10.1.0.0/16`. With `none`, webhooks reach public addresses only, over TLS.",
        _read_networks,
    )
    otlp_endpoint: str | None = _setting(
        "",
        "Address of an OpenTelemetry collector for spans of requests, OTLP over HTTP: `https://…/v1/traces`. Needs the "
        "extra `otel`. When unset, there are no spans.",
        _read_endpoint,
    )
    security_contact: str | None = _setting(
        "",
        "Where people report a weakness of this installation: `mailto:security@example.org`, or an `https://` "
        "address. `/.well-known/security.txt` names it (RFC 9116). When unset, that path is 404.",
        _read_contact,
    )
    dask_scheduler: str | None = _setting(
        "",
        "Address of a Dask scheduler whose workers count the rows of large datasets: `tls://<host>:8786`, or "
        "`tcp://127.0.0.1:8786` on one machine. Needs the extra `dask`. When unset, a job counts in its own process.",
        worker=True,
    )
    dask_rows: int = _setting(
        "10000000",
        "Declared size from which on a dataset's forests and statistics are counted on the Dask cluster.",
        int,
        worker=True,
    )
    dask_deadline_s: int = _setting(
        "600",
        "Seconds, 1 to 86,400, in which all Dask workers have read their rows, or have counted a level; then the job "
        "fails, charged.",
        int,
        worker=True,
    )
    dask_ca_file: Path | None = _setting(
        "",
        "Certificate, in PEM, of the authority that signs the certificates of the Dask cluster and no others.",
        _read_path,
        worker=True,
    )
    dask_cert_file: Path | None = _setting(
        "",
        "This machine's certificate in the Dask cluster, in PEM.",
        _read_path,
        worker=True,
    )
    dask_key_file: Path | None = _setting(
        "", "The private key of that certificate, in PEM.", _read_path, worker=True
    )
    log_level: str = _setting(
        "INFO",
        f"One of {', '.join(LOG_LEVELS)}. Logs are JSON lines on standard error.",
        str.upper,
        worker=True,
    )
    signing_key_file: Path | None = _setting(
        "",
        "File of the Ed25519 key that signs checkpoints, PKCS #8 in PEM. When unset, `<home>/signing.key`, made at the "
        "first start. Machines of one installation share one key.",
        _read_path,
        worker=True,
    )
    storage_key: str | None = _setting(
        "",
        "Key that wraps the keys of stored rows, 32 random bytes in base64; during a rotation several, the newest "
        "first, separated by spaces or lines. When unset, `<home>/storage.key`, made at the first start. Machines of "
        "one installation share the keys.",
        secret=True,
        worker=True,
    )
    checkpoint_dir: Path | None = _setting(
        "",
        "Folder for the newest signed head of every account, outside the database, so that a restore from an older "
        "backup is detected. When unset, `<home>/checkpoints`. Machines of one installation share one folder.",
        _read_path,
        worker=True,
    )
    oidc_issuer: str | None = _setting(
        "",
        "The `iss` claim of the tokens that are accepted beside keys. When unset, keys alone are accepted.",
    )
    oidc_audience: str | None = _setting(
        "",
        "The only audience in the `aud` claim of a token.",
    )
    oidc_jwks: str | Path | None = _setting(
        "",
        "The public keys of the identity provider, a JSON Web Key Set: an `https://` address (on this machine also "
        "`http://`), or a file. When unset, `<issuer>/.well-known/openid-configuration` names their address.",
        _read_location,
    )
    oidc_max_lifetime_s: int = _setting(
        "3600",
        "Largest number of seconds from the issue of a token to its expiry, 60 to 86,400. A token is believed until it "
        "ends, whatever the provider revokes meanwhile.",
        int,
    )
    oidc_roles_claim: str = _setting(
        "roles",
        "The claim that names roles: a text, or a list of texts.",
    )
    oidc_roles: Mapping[str, str] = _setting(
        "{}",
        'Global roles by value of that claim, as a JSON object: `{"stewards": "owner"}`. The roles are '
        f"{', '.join(GLOBAL_ROLES)}; other values of the claim give no role.",
        _read_roles,
    )
    url: str = _setting(
        "http://127.0.0.1:8731",
        "Address of the service that the client commands use.",
        str.strip,
    )
    api_key: str | None = _setting(
        "",
        "The key that the client commands send. When unset, they read `<home>/admin.key`.",
        str.strip,
        secret=True,
    )

    def __post_init__(self) -> None:
        in_range = {
            "workers": 0 <= self.workers <= limits.MAX_WORKERS,
            "port": 0 <= self.port <= 65_535,
            "lease_ttl_s": 3 <= self.lease_ttl_s <= 3_600,
            "poll_interval_s": 0.01 <= self.poll_interval_s <= 60,
            "release_interval_s": 0
            <= self.release_interval_s
            <= limits.MAX_RELEASE_INTERVAL_S,
            "dask_rows": self.dask_rows >= 0,
            "dask_deadline_s": 1 <= self.dask_deadline_s <= 86_400,
            "oidc_max_lifetime_s": 60
            <= self.oidc_max_lifetime_s
            <= limits.MAX_TOKEN_LIFETIME_S,
            "log_level": self.log_level in LOG_LEVELS,
        }
        for name, holds in in_range.items():
            if not holds:
                raise InstallationError(
                    f"{PREFIX}{name.upper()} is outside its range; see docs/settings.md"
                )
        self._check_path_prefix()
        self._check_store()
        self._check_provider()
        # refused at the start of a process, not at the charge of a job
        _ = self.dask_cluster

    def _check_path_prefix(self) -> None:
        """Checks that the prefix and the path of a page give the path of an address."""
        prefix = self.path_prefix or ""
        if prefix and (
            len(prefix) > limits.MAX_PATH_PREFIX_CHARS
            or not _PATH_PREFIX.fullmatch(prefix)
        ):
            raise InstallationError(
                f"{PREFIX}PATH_PREFIX is no path prefix. It has names of letters (A to Z), digits and `-._~`, one `/` "
                "before each name and none at the end, as in `/tools/grovekeeper`; at most "
                f"{limits.MAX_PATH_PREFIX_CHARS} characters"
            )

    def _check_store(self) -> None:
        """Checks that the address of the store has no secret: it is shown when
        processes start.
        """
        scheme, _, place = (self.store or "").partition("://")
        authority = place.partition("/")[0]
        # <container>@<account>
        has_container = scheme in ("abfs", "abfss") and "@" in authority
        # Not read as an address: a slash in a secret that is not quoted ends its
        # authority.
        n_signs = (authority if scheme == "file" else place).count("@") - has_container
        has_password = ":" in authority and scheme not in ("http", "https")
        if n_signs or has_password or "?" in place or "#" in place:
            raise InstallationError(
                f"{PREFIX}STORE has no user, password or query: the variables of the provider's tools hold credentials"
            )

    def _check_provider(self) -> None:
        """Checks that the settings of an identity provider agree."""
        needed = {"oidc_issuer": self.oidc_issuer, "oidc_audience": self.oidc_audience}
        unset = [
            f"{PREFIX}{name.upper()}" for name, value in needed.items() if value is None
        ]
        if unset and (len(unset) < len(needed) or self.oidc_jwks is not None):
            raise InstallationError(
                f"{', '.join(unset)} must be set, too, for tokens of an identity provider"
            )
        if (
            self.oidc_issuer is not None
            and self.oidc_jwks is None
            and not _is_address(self.oidc_issuer)
        ):
            raise InstallationError(
                f"{PREFIX}OIDC_JWKS must be set, too: {PREFIX}OIDC_ISSUER is no `https://` address to read it from"
            )

    @cached_property
    def dask_cluster(self) -> DaskCluster | None:
        """The cluster that counts the rows of large datasets.

        Raises:
            InstallationError: the settings of the cluster do not agree, or a file of
                its certificates cannot be read.
        """
        if self.dask_scheduler is None:
            return None
        if importlib.util.find_spec("distributed") is None:
            raise InstallationError(f"{PREFIX}DASK_SCHEDULER needs the extra `dask`")
        files = self.dask_ca_file, self.dask_cert_file, self.dask_key_file
        try:
            cluster = DaskCluster(
                self.dask_scheduler, *files, deadline_s=self.dask_deadline_s
            )
        except ValueError as error:
            raise InstallationError(f"{PREFIX}DASK_SCHEDULER: {error}") from None
        for name, file in zip(("CA", "CERT", "KEY"), files, strict=True):
            _require_readable(file, f"{PREFIX}DASK_{name}_FILE")
        return cluster

    @classmethod
    def from_environment(cls, environ: Mapping[str, str], **overrides: object) -> Self:
        """Reads every setting.

        Args:
            environ: usually ``os.environ``. An empty variable counts as unset.
            overrides: values of command-line flags by setting name; ``None`` means that
                the flag was not given.

        Raises:
            InstallationError: a value cannot be read, or a secret is given both as a
                variable and as a file. The message never shows the value.
        """
        known = {setting.name for setting in SETTINGS}
        if not overrides.keys() <= known:
            raise TypeError(
                f"no such setting: {', '.join(sorted(overrides.keys() - known))}"
            )
        values = {setting.name: _read(setting, environ) for setting in SETTINGS}
        values |= {
            name: value for name, value in overrides.items() if value is not None
        }
        arguments = {name: value for name, value in values.items() if value is not None}
        home = arguments["home"] if "home" in arguments else _default_home()
        arguments["home"] = home
        _require_utf8(arguments)
        # Quoted, because the database reads its address as a URL: a ``?`` in a folder's
        # name would end the path.
        arguments.setdefault(
            "database_url", f"sqlite:///{quote(str(home))}/grovekeeper.sqlite3"
        )
        return cls(**arguments)  # type: ignore[arg-type]  # each value was read by its own setting


SETTINGS = tuple(Setting(it.name, **it.metadata) for it in fields(Settings))
"""Every setting, in the order of ``docs/settings.md``."""


_OF_A_CLUSTER = re.compile(r"SERVICE_(HOST|PORT)|PORT_[0-9]+_(TCP|UDP)")
"""In variables that Kubernetes sets for each Service object, as one of the name
``grovekeeper``.
"""


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """Variables with the prefix that set nothing: misspelt ones, or those of another
    version.
    """
    known = {it.variable for it in SETTINGS} | {
        f"{it.variable}_FILE" for it in SETTINGS if it.secret
    }
    unknown = [
        name for name in environ if name.startswith(PREFIX) and name not in known
    ]
    return sorted(
        name
        for name in unknown
        if not (_OF_A_CLUSTER.search(name) or environ[name].startswith("tcp://"))
    )


_QUOTES = "\"'"
_TOLERANT = (int, float, str.strip, _read_roles)
"""Readers that do not mind blanks around a value."""


def _read(setting: Setting, environ: Mapping[str, str]) -> object | None:
    text = environ.get(setting.variable) or None
    if setting.secret:
        text = _read_secret(setting, environ, text=text)
    if text is None:
        return None
    tolerant = setting.secret or setting.read in _TOLERANT
    text = _bare(setting.variable, text, tolerant=tolerant)
    try:
        return setting.read(text)
    except ValueError:
        raise InstallationError(
            f"{setting.variable} cannot be read; see docs/settings.md"
        ) from None


def _bare(variable: str, text: str, *, tolerant: bool) -> str:
    """A value without the blanks around it, which only a tolerant reader may lose.
    Kept, quotes and blanks would name another folder, and so a new installation; so
    would a value of blanks alone that counts as unset.
    """
    bare = text.strip()
    if not bare or bare[0] in _QUOTES or not (tolerant or bare == text):
        raise InstallationError(
            f"{variable} has quotes, blanks or a line end around its value: `docker run --env-file` and files of "
            "Windows keep them"
        )
    return bare


def _require_utf8(values: Mapping[str, object]) -> None:
    """Checks that every value can be written in JSON and in addresses. Python reads
    other bytes as surrogates.
    """
    for name, value in values.items():
        try:
            str(value).encode("utf-8")
        except UnicodeEncodeError:
            raise InstallationError(f"{PREFIX}{name.upper()} is not UTF-8") from None


def _read_secret(
    setting: Setting, environ: Mapping[str, str], *, text: str | None
) -> str | None:
    file_variable = f"{setting.variable}_FILE"
    path = environ.get(file_variable)
    if not path:
        return text
    if text is not None:
        raise InstallationError(f"set {setting.variable} or {file_variable}, not both")
    file = Path(_bare(file_variable, path, tolerant=False))
    try:
        return read_secret(file, f"the file that {file_variable} names")
    except ValueError as error:
        raise InstallationError(str(error)) from None


def _require_readable(file: Path | None, variable: str) -> None:
    try:
        if file is not None:
            file.open("rb").close()
    except OSError:
        raise InstallationError(
            f"the file that {variable} names cannot be read"
        ) from None


def to_markdown() -> str:
    """The text of ``docs/settings.md``."""
    rows = [
        f"| `{setting.variable}` | {f'`{setting.default}`' if setting.default else ''} "
        f"| {'yes' if setting.secret else ''} | {setting.meaning} |"
        for setting in SETTINGS
    ]
    return "\n".join((_PAGE_HEAD, *rows, ""))


_PAGE_HEAD = """\
# Settings

Generated from `app/core/settings.py` by `python -m app.core.settings > docs/settings.md`; do not edit.

Every setting is an environment variable. A command-line flag of the same name takes precedence (`--port` over
`GROVEKEEPER_PORT`). An empty variable counts as unset; a variable that is no setting sets nothing, and a start names
it. Quotes around a value, which `docker run --env-file` keeps, are refused, and so are blanks alone and blanks around
a path or a text; around numbers and secrets blanks do not count. A secret can also be read from a file: append
`_FILE` to the variable's name and set it to the file's name (`GROVEKEEPER_ADMIN_KEY_FILE=/run/secrets/admin_key`).
`--database-url` and `--migration-url` take no password, because every account of the machine can read the command
lines of running processes.

| variable | default | secret | meaning |
|---|---|---|---|"""


if __name__ == "__main__":
    print(to_markdown(), end="")
