"""Writes ``deploy/kubernetes/grovekeeper.yaml``, which is the Helm chart with its
default values, for clusters without Helm.

``python3 deploy/render_kubernetes.py`` needs ``helm`` 3 or 4.
"""

import subprocess
from pathlib import Path

_DEPLOY = Path(__file__).resolve().parent
CHART = _DEPLOY / "helm" / "grovekeeper"
MANIFEST = _DEPLOY / "kubernetes" / "grovekeeper.yaml"
_HEADING = """\
# An installation on Kubernetes: a migration, API replicas and workers; PostgreSQL is elsewhere.
# This is the chart in deploy/helm/grovekeeper with its default values, written by deploy/render_kubernetes.py.
#
# First: kubectl create namespace grovekeeper
#        kubectl --namespace grovekeeper create secret generic grovekeeper --from-file=secrets/
# (files of deploy/make_secrets.py with the addresses of your database, and
# signing_key: docs/guides/operator-install.md)
# Then:  kubectl --namespace grovekeeper apply --filename deploy/kubernetes/grovekeeper.yaml
# For a new version: delete the job grovekeeper-migrate-1, set the image, apply again.
"""


def rendered(*options: str) -> str:
    """The objects of the chart, as YAML.

    Args:
        options: of ``helm template``, such as ``--set user=null``.
    """
    namespace = ("--namespace", "grovekeeper")
    command = ["helm", "template", "grovekeeper", str(CHART), *namespace, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout


def manifest() -> str:
    """What the file has to be."""
    return _HEADING + rendered()


if __name__ == "__main__":
    MANIFEST.write_text(manifest(), encoding="utf-8")
