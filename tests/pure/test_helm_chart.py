"""The Helm chart: what it makes of values that people choose is valid by the published
schema of Kubernetes, and the manifest for clusters without Helm is the chart.
"""

import shutil
import subprocess
from typing import Any

import kubernetes_validate
import pytest
import yaml

from deploy.render_kubernetes import CHART, MANIFEST, manifest, rendered

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(shutil.which("helm") is None, reason="helm is not installed"),
]

CHOICES = {
    "defaults": (),
    "object store": (
        "--set=objectStore.address=s3://bucket/prefix",
        "--set=objectStore.secret=store",
        "--set=objectStore.cidr=10.30.0.0/16",
        "--set=serviceAccount.annotations.role=arn",
    ),
    "user of the platform": ("--set=user=null",),
    "proxy of the cluster": (
        "--set=ingress.enabled=true",
        "--set=ingress.className=nginx",
        "--set=ingress.host=privacy.example.org",
        "--set=ingress.tlsSecret=privacy-tls",
        "--set=ingress.annotations.body=4g",
        "--set=settings.GROVEKEEPER_OIDC_ISSUER=https://id.example.org",
    ),
    "exact image": (
        f"--set=image.digest=sha256:{'0' * 64}",
        "--set=image.pullSecrets[0].name=registry",
        "--set=home.existingClaim=home",
    ),
}
REFUSED = {
    "a word that is no value": "--set=workers.replicas=3",
    "a store that no network policy admits": "--set=objectStore.address=s3://bucket",
    "a tag as a digest": "--set=image.digest=0.1.0",
    "a setting of another program": "--set=settings.LD_PRELOAD=x",
    "the user root": "--set=user=0",
}


def _objects(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    objects = yaml.safe_load_all(rendered(*options))
    return {(it["kind"], it["metadata"]["name"]): it for it in objects if it}


def _pod(objects: dict[tuple[str, str], dict[str, Any]], name: str) -> dict[str, Any]:
    pod: dict[str, Any] = objects["Deployment", f"grovekeeper-{name}"]["spec"][
        "template"
    ]["spec"]
    return pod


def test_the_manifest_is_the_chart() -> None:
    assert MANIFEST.read_text(encoding="utf-8") == manifest(), (
        "run python3 deploy/render_kubernetes.py"
    )


def test_the_chart_has_no_fault_that_helm_knows() -> None:
    command = ["helm", "lint", "--strict", str(CHART)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("choice", CHOICES)
def test_the_objects_are_valid_by_the_published_schema(choice: str) -> None:
    for it in _objects(*CHOICES[choice]).values():
        kubernetes_validate.validate(
            it, kubernetes_validate.latest_version(), strict=True
        )


@pytest.mark.parametrize("refused", REFUSED)
def test_a_value_that_would_do_something_else_is_refused(refused: str) -> None:
    with pytest.raises(subprocess.CalledProcessError) as failed:
        rendered(REFUSED[refused])
    assert "values don't meet the specifications of the schema" in failed.value.stderr


def test_with_an_object_store_no_folder_is_shared_and_workers_reach_the_store() -> None:
    objects = _objects(*CHOICES["object store"])
    assert not [kind for kind, _ in objects if kind == "PersistentVolumeClaim"]
    for name in ("api", "worker"):
        homes = [it for it in _pod(objects, name)["volumes"] if it["name"] == "home"]
        assert homes == [{"name": "home", "emptyDir": {"sizeLimit": "100Gi"}}]
        (container,) = _pod(objects, name)["containers"]
        store = {"name": "GROVEKEEPER_STORE", "value": "s3://bucket/prefix"}
        assert store in container["env"]
        policy = objects["NetworkPolicy", f"grovekeeper-{name}"]["spec"]
        addresses = [
            to["ipBlock"]["cidr"] for it in policy["egress"] for to in it["to"]
        ]
        assert "10.30.0.0/16" in addresses


def test_the_platform_may_choose_the_user() -> None:
    security = _pod(_objects(*CHOICES["user of the platform"]), "api")[
        "securityContext"
    ]
    assert security.keys().isdisjoint({"runAsUser", "runAsGroup", "fsGroup"})
    assert security["runAsNonRoot"]


def test_the_image_is_the_named_one_in_every_container() -> None:
    objects = _objects(*CHOICES["exact image"])
    images = {
        container["image"]
        for it in objects.values()
        for pod in [it.get("spec", {}).get("template", {}).get("spec", {})]
        for container in [*pod.get("containers", ()), *pod.get("initContainers", ())]
    }
    assert images == {f"grovekeeper@sha256:{'0' * 64}"}
