"""Builds the image with buildah where no container engine runs: vfs, chroot, over a base made by debootstrap, for no registry is asked."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "build" / "image"
BASE = "localhost/model-gateway-base"
IMAGE = "localhost/model-gateway-tried"
INCLUDED = "python3-minimal,python3-venv,ca-certificates"
SUITE = "bookworm"
MIRROR = "http://deb.debian.org/debian"
BUILD_S = 900
OF_THE_HOST = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf", "/opt/wheels")
"""How this machine's pip reaches its index, where it has something of its own to say."""


@dataclass(frozen=True, slots=True)
class Built:
    root: Path
    """The image's files."""
    base: Path
    """Those of its base, which has a Python and nothing else of ours."""
    config: dict[str, Any]
    """Entrypoint, Cmd, Env, User, Healthcheck."""


def built() -> Built:
    """The base is kept from one run to the next, the image is made anew."""
    if not _buildah("images", "--quiet", "--filter", f"reference={BASE}"):
        _make_base()
    mounts = [word for path in OF_THE_HOST if Path(path).exists() for word in ("--volume", f"{path}:{path}:ro")]
    _buildah("bud", "--isolation", "chroot", "--pull-never", "--format", "docker", *mounts, "--build-arg", f"BASE_IMAGE={BASE}", "--tag", IMAGE, str(ROOT))
    config = json.loads(_buildah("inspect", "--type", "image", IMAGE))["Docker"]["config"]
    return Built(_mounted(IMAGE), _mounted(BASE), config)


def remove_containers() -> None:
    """What `built` mounted, and images that newer ones have replaced; the base stays."""
    _buildah("rm", "--all")
    _buildah("rmi", "--prune")


def _make_base() -> None:
    base = FOLDER / "base"
    FOLDER.mkdir(parents=True, exist_ok=True)
    subprocess.run(["rm", "-rf", str(base)], check=True)
    _run(["debootstrap", "--variant=minbase", f"--include={INCLUDED}", SUITE, str(base), MIRROR])
    container = _buildah("from", "scratch")
    subprocess.run(["cp", "-a", f"{base}/.", _buildah("mount", container)], check=True)
    _buildah("commit", "--quiet", container, BASE)
    _buildah("rm", container)
    subprocess.run(["rm", "-rf", str(base)], check=True)


def _mounted(image: str) -> Path:
    return Path(_buildah("mount", _buildah("from", "--pull-never", image)))


def _buildah(*words: str) -> str:
    return _run(["buildah", "--storage-driver", "vfs", "--root", str(FOLDER / "store"), "--runroot", str(FOLDER / "running"), *words])


def _run(command: list[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout.strip()
