"""The agents, installed by their pins into a folder of their own: `python -m tests.agents.installing`. What is there already is not fetched again.

npm's lock and the frozen lists of pip pin everything that comes along. No package's own script is run. Node itself comes from npm, for the machine's may
be too old.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).parent / "pins"
PYTHON_AGENTS = ("mini", "inspect", "aider")
FORBIDDEN = "litellm==1.107.0"


def cache() -> Path:
    """`GATEWAY_AGENTS_CACHE`, else in the user's cache."""
    given = os.environ.get("GATEWAY_AGENTS_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "model-gateway" / "agents"


def install() -> Path:
    """Raises CalledProcessError where a registry does not serve."""
    folder = cache()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _part(folder / "npm", [PINS / "npm/package.json", PINS / "npm/package-lock.json"], _npm)
        for name in PYTHON_AGENTS:
            _part(folder / name, [PINS / f"{name}.txt"], _venv)
    return folder


def _part(folder: Path, pins: list[Path], fill: object) -> None:
    digest = hashlib.sha256(b"".join(pin.read_bytes() for pin in pins)).hexdigest()
    mark = folder / "installed"
    if mark.exists() and mark.read_text() == digest:
        return
    print(f"installing {folder.name}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    assert callable(fill)
    fill(folder, pins)
    mark.write_text(digest)


def _npm(folder: Path, pins: list[Path]) -> None:
    for pin in pins:
        shutil.copy(pin, folder)
    # Not `npm ci`: it wants the packages of other machines' kinds in the lock too, which not every registry has.
    _run(["npm", "install", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], folder)


def _venv(folder: Path, pins: list[Path]) -> None:
    assert FORBIDDEN not in pins[0].read_text(), f"{FORBIDDEN} is not to be installed"
    _run([_python(), "-m", "venv", "--without-pip", str(folder)], folder)
    pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin/python"), "--disable-pip-version-check"]
    _run([*pip, "install", "--quiet", "--no-deps", "-r", str(pins[0])], folder)


def _python() -> str:
    """One that another user can reach too: not below a home that is closed to them."""
    for name in ("/usr/bin/python3", "/usr/local/bin/python3", sys.executable):
        if (
            Path(name).exists()
            and subprocess.run([name, "-c", "import venv, sys; sys.exit(sys.version_info < (3, 11))"], capture_output=True, check=False).returncode == 0
        ):
            return name
    return sys.executable


def _run(command: list[str], folder: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
        done.check_returncode()


if __name__ == "__main__":
    print(install())
