"""The components of `deploy/kubernetes`, composed and rendered by kustomize, alone or as part of kubectl."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

KUBERNETES = Path(__file__).parent / "kubernetes"
INSTALL = KUBERNETES / "install"  # a folder for each install-*.yaml


def can_render() -> bool:
    """Tell whether kubectl or kustomize is there."""
    return bool(_kustomize())


def compose(base: str, components: Sequence[str]) -> list[dict[str, Any]]:
    """Return the resources of `base` or `plain` with components of `deploy/kubernetes/components`, in that order."""
    with tempfile.TemporaryDirectory() as folder:
        above = Path(os.path.relpath(KUBERNETES, Path(folder).resolve()))
        kustomization = {
            "resources": [str(above / base)],
            "components": [str(above / "components" / name) for name in components],
        }
        Path(folder, "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
        return list(yaml.safe_load_all(rendered(Path(folder))))


def rendered(folder: Path) -> str:
    """Return a kustomization's resources as `kubectl apply` would send them."""
    done = subprocess.run([*_kustomize(), str(folder)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def _kustomize() -> list[str]:
    if shutil.which("kustomize"):
        return ["kustomize", "build"]
    return ["kubectl", "kustomize"] if shutil.which("kubectl") else []
