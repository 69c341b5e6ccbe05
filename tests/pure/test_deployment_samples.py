"""The samples for Kubernetes, nginx and Compose are valid and agree with the image and
with each other.
"""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from app.core import limits
from app.core.settings import SETTINGS

_ROOT = Path(__file__).parents[2]
_FILE = _ROOT / "deploy" / "kubernetes" / "grovekeeper.yaml"
OBJECTS: list[dict[str, Any]] = list(
    yaml.safe_load_all(_FILE.read_text(encoding="utf-8"))
)
PODS = {
    it["metadata"]["labels"]["app.kubernetes.io/component"]: it["spec"]["template"][
        "spec"
    ]
    for it in OBJECTS
    if "template" in it.get("spec", {})
}
COMPOSE: dict[str, Any] = yaml.safe_load(
    (_ROOT / "docker-compose.yml").read_text(encoding="utf-8")
)["services"]
OBJECT_STORE = _ROOT / "deploy" / "objectstore"
NGINX = (_ROOT / "deploy" / "nginx" / "grovekeeper.conf").read_text(encoding="utf-8")
DOCKERFILE = (_ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "index", range(len(OBJECTS)), ids=lambda index: f"{OBJECTS[index]['kind']} {index}"
)
def test_an_object_is_valid_by_the_published_schema(index: int) -> None:
    kubernetes_validate.validate(
        OBJECTS[index], kubernetes_validate.latest_version(), strict=True
    )


def test_an_unknown_member_is_found() -> None:
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(
            OBJECTS[0] | {"surprise": 1},
            kubernetes_validate.latest_version(),
            strict=True,
        )


@pytest.mark.parametrize("name", PODS)
def test_a_pod_has_no_more_rights_than_it_needs(name: str) -> None:
    pod = PODS[name]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    user = (
        f"{pod['securityContext']['runAsUser']}:{pod['securityContext']['runAsGroup']}"
    )
    assert f"USER {user}\n" in DOCKERFILE
    assert pod["automountServiceAccountToken"] is pod["enableServiceLinks"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert {mount["name"] for mount in container["volumeMounts"]} == {
        volume["name"] for volume in pod["volumes"]
    }
    paths = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {"/tmp", "/var/lib/grovekeeper"} <= paths


@pytest.mark.parametrize("name", PODS)
def test_a_pod_runs_what_the_compose_service_runs_with_the_secrets_that_it_reads(
    name: str,
) -> None:
    service = COMPOSE[name]
    (container,) = PODS[name]["containers"]
    assert container["args"] == service["command"]
    variables = {variable["name"]: variable["value"] for variable in container["env"]}
    known = {
        f"{setting.variable}{ending}"
        for setting in SETTINGS
        for ending in ("", "_FILE")
    }
    assert variables.keys() <= known
    # Compose keeps the signing key in the volume that its services share.
    assert (
        variables.keys() - {"GROVEKEEPER_SIGNING_KEY_FILE"}
        == service["environment"].keys()
    )
    (secret,) = (
        volume["secret"]
        for volume in PODS[name]["volumes"]
        if volume["name"] == "secrets"
    )
    assert {f"/run/secrets/{item['path']}" for item in secret["items"]} == set(
        variables.values()
    )


def test_the_chart_has_the_version_of_the_service() -> None:
    text = (_ROOT / "deploy" / "helm" / "grovekeeper" / "Chart.yaml").read_text("utf-8")
    project = tomllib.loads((_ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    chart = yaml.safe_load(text)
    assert chart["version"] == chart["appVersion"] == project["version"]
    images = {
        container["image"] for pod in PODS.values() for container in pod["containers"]
    }
    assert images == {f"grovekeeper:{project['version']}"}


def test_a_worker_has_the_time_to_finish_the_longest_job() -> None:
    """A worker that is killed before loses the budget of its job."""
    longest_s = limits.CHILD_TIMEOUT_S + limits.CHILD_EXIT_S
    assert PODS["worker"]["terminationGracePeriodSeconds"] > longest_s
    compose = COMPOSE["worker"]["stop_grace_period"]
    unit = (_ROOT / "deploy" / "systemd" / "grovekeeper.service").read_text(
        encoding="utf-8"
    )
    hours = [
        compose.removesuffix("h"),
        *re.findall(r"^TimeoutStopSec=(\d+)h$", unit, flags=re.MULTILINE),
    ]
    assert len(hours) == 2
    assert all(int(number) * 3_600 > longest_s for number in hours)
    assert "KillMode=mixed" in unit.splitlines()


def test_every_service_has_limits_of_memory_and_processes_and_those_of_a_pod() -> None:
    assert all(service["pids_limit"] >= 256 for service in COMPOSE.values())
    limits_of = {
        name: service["mem_limit"].removesuffix("b").upper() + "i"
        for name, service in COMPOSE.items()
    }
    for name, pod in PODS.items():
        (container,) = pod["containers"]
        assert container["resources"]["limits"]["memory"] == limits_of[name]


def test_a_worker_starts_on_compiled_code() -> None:
    assert COMPOSE["worker"]["depends_on"]["prepare"] == {
        "condition": "service_completed_successfully"
    }
    pod = PODS["worker"]
    (prepare,) = pod["initContainers"]
    (worker,) = pod["containers"]
    assert prepare["args"] == COMPOSE["prepare"]["command"] == ["prepare"]
    assert prepare["securityContext"] == worker["securityContext"]
    assert prepare["resources"]["limits"]["memory"] == "1Gi"
    assert [
        mount for mount in worker["volumeMounts"] if "/var/cache" in mount["mountPath"]
    ] == [
        mount for mount in prepare["volumeMounts"] if "/var/cache" in mount["mountPath"]
    ]


def test_probes_ask_the_paths_that_need_no_key() -> None:
    (container,) = PODS["api"]["containers"]
    paths = {
        name: container[name]["httpGet"]["path"]
        for name in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    assert paths == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }
    assert container["readinessProbe"]["timeoutSeconds"] > limits.READINESS_WAIT_S
    assert f"EXPOSE {container['ports'][0]['containerPort']}\n" in DOCKERFILE


def test_workers_and_migrations_reach_the_database_alone() -> None:
    policies = {
        it["metadata"]["name"]: it["spec"]
        for it in OBJECTS
        if it["kind"] == "NetworkPolicy"
    }
    everyone, api = policies["grovekeeper"], policies["grovekeeper-api"]
    assert everyone["podSelector"]["matchLabels"] == {
        "app.kubernetes.io/name": "grovekeeper",
        "app.kubernetes.io/instance": "grovekeeper",
    }
    assert everyone["ingress"] == []
    ports = [port["port"] for rule in everyone["egress"] for port in rule["ports"]]
    assert ports == [53, 53, 5432]
    assert api["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "api"
    (outside,) = (peer["ipBlock"] for rule in api["egress"] for peer in rule["to"])
    assert {"10.0.0.0/8", "169.254.0.0/16", "192.168.0.0/16"} <= set(outside["except"])


def _directive(name: str) -> str:
    found = re.search(rf"^\s*{name} (.*);$", NGINX, re.MULTILINE)
    assert found is not None, name
    return found[1]


def test_the_proxy_admits_what_the_service_admits_and_keeps_no_body() -> None:
    assert NGINX.count("{") == NGINX.count("}")
    assert (
        _directive("client_max_body_size")
        == f"{limits.MAX_UPLOAD_BODY_BYTES // 1024**3}g"
    )
    assert (_directive("proxy_request_buffering"), _directive("proxy_buffering")) == (
        "off",
        "off",
    )
    assert int(_directive("client_body_timeout").removesuffix("s")) > limits.BODY_WAIT_S
    assert (
        int(_directive("client_header_timeout").removesuffix("s"))
        == limits.REQUEST_HEAD_S
    )
    assert NGINX.count("proxy_set_header Host $http_host;") == NGINX.count(
        "proxy_pass "
    )
    assert _directive("proxy_next_upstream") == "off"
    buffers, size = _directive("large_client_header_buffers").split()
    assert (
        int(buffers) * int(size.removesuffix("k")) * 1024
        <= limits.MAX_REQUEST_HEAD_BYTES
    )
    streams = NGINX[NGINX.index("/events$") :]
    assert (
        int(re.findall(r"proxy_read_timeout (\d+)h", streams)[0]) * 3_600
        > limits.CHILD_TIMEOUT_S
    )


def test_the_guide_serves_below_a_path_what_the_sample_serves_at_the_root() -> None:
    guide = (_ROOT / "docs" / "guides" / "operator-install.md").read_text(
        encoding="utf-8"
    )
    (shown,) = re.findall(r"^```nginx\n(.*?)^```", guide, re.DOTALL | re.MULTILINE)
    (prefix,) = re.findall(r"`GROVEKEEPER_PATH_PREFIX=([^`]+)`", guide)
    assert f"location {prefix}/ {{\n    proxy_pass http://grovekeeper/;" in shown, (
        "the slash removes the prefix"
    )
    assert f"location = {prefix}/metrics {{\n    return 404;" in shown
    at_root = NGINX[NGINX.index("location / {") : NGINX.index("location = /metrics")]
    for name in (
        "proxy_http_version",
        "proxy_set_header Host",
        "proxy_read_timeout",
        "proxy_next_upstream",
    ):
        (line,) = re.findall(rf"^ +({name} .*;)$", at_root, re.MULTILINE)
        assert line in shown


def test_the_proxy_reaches_the_replicas_of_compose() -> None:
    first, last = (
        int(port) for port in COMPOSE["api"]["ports"][0].split(":")[1].split("-")
    )
    used = [int(port) for port in re.findall(r"server 127\.0\.0\.1:(\d+);", NGINX)]
    assert len(used) == COMPOSE["api"]["deploy"]["replicas"]
    assert all(first <= port <= last for port in used)


class _Override(yaml.SafeLoader):
    """Reads the tag that Compose knows and YAML does not."""


_Override.add_constructor(
    "!override", lambda loader, node: loader.construct_sequence(node)
)


def _override() -> dict[str, Any]:
    text = (OBJECT_STORE / "docker-compose.yml").read_text(encoding="utf-8")
    return dict(yaml.load(text, Loader=_Override))


def test_with_an_object_store_no_service_shares_a_folder_of_rows() -> None:
    services = _override()["services"]
    assert services.keys() == {
        name for name, service in COMPOSE.items() if "build" in service
    }
    for name, service in services.items():
        assert "/var/lib/grovekeeper" in service["volumes"], (
            f"the home of {name} is its own"
        )
        assert [
            mount for mount in service["volumes"] if mount.startswith("home:")
        ] == []


def test_with_an_object_store_every_machine_has_the_keys_that_it_may_not_make() -> None:
    known = {
        f"{setting.variable}{ending}"
        for setting in SETTINGS
        for ending in ("", "_FILE")
    }
    for name in ("api", "worker"):
        service = _override()["services"][name]
        assert service["environment"].keys() <= known
        assert service["environment"].keys() >= COMPOSE[name]["environment"].keys() | {
            "GROVEKEEPER_SIGNING_KEY_FILE"
        }
        assert {f"/run/secrets/{secret}" for secret in service["secrets"]} == set(
            service["environment"].values()
        )
        assert "outside" in service["networks"], (
            "the store is beyond the network of the database"
        )
    named = re.findall(
        r"^# +(GROVEKEEPER_[A-Z_]+)=",
        (OBJECT_STORE / "docker-compose.yml").read_text(),
        re.MULTILINE,
    )
    assert named == ["GROVEKEEPER_STORE"]


def test_the_bucket_keeps_no_part_and_no_version_that_an_erasure_does_not_find() -> (
    None
):
    rules = json.loads((OBJECT_STORE / "lifecycle.json").read_text(encoding="utf-8"))[
        "Rules"
    ]
    assert all(
        rule["Status"] == "Enabled" and rule["Filter"] == {"Prefix": ""}
        for rule in rules
    )
    acts = {
        name: value
        for rule in rules
        for name, value in rule.items()
        if name not in ("ID", "Status", "Filter")
    }
    assert acts == {
        "AbortIncompleteMultipartUpload": {"DaysAfterInitiation": 1},
        "NoncurrentVersionExpiration": {"NoncurrentDays": 1},
    }, "and nothing that is current ever expires"


def test_credentials_reach_the_files_of_one_prefix_and_those_of_a_dask_worker_read_rows_alone() -> (
    None
):
    service, worker = (
        json.loads((OBJECT_STORE / f"{name}-policy.json").read_text(encoding="utf-8"))[
            "Statement"
        ]
        for name in ("service", "dask-worker")
    )
    assert {statement["Effect"] for statement in (*service, *worker)} == {"Allow"}
    listing, files = service
    assert listing["Action"] == "s3:ListBucket", (
        "without it, S3 answers 403 for an object that is absent"
    )
    assert set(files["Action"]) >= {"s3:GetObject", "s3:PutObject", "s3:DeleteObject"}
    assert files["Resource"] == "arn:aws:s3:::BUCKET/PREFIX/*"
    assert [(it["Action"], it["Resource"]) for it in worker] == [
        ("s3:GetObject", "arn:aws:s3:::BUCKET/PREFIX/rows/*")
    ]
