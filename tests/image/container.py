"""Runs a command as a container engine would, by what one JSON document on the command line says. Run by root in a mount namespace of its own.

Read-only root, the mounts that are named, a user of its own, no capability, no new privileges; what is named in `hide` is an empty file.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PR_CAPBSET_DROP = 24
PR_SET_NO_NEW_PRIVS = 38
LAST_CAPABILITY = 63


def main(told: dict[str, Any]) -> None:
    root = Path(told["root"])
    _mount("--make-rprivate", "/")
    _mount("--bind", str(root), str(root))
    for source, target, options in told["binds"]:
        place = root / target.lstrip("/")
        if Path(source).is_dir():
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.touch(exist_ok=True)
        _mount("--bind", source, str(place))
        if options == "ro":
            _mount("-o", "remount,bind,ro", str(place))
    for target, options in told["tmpfs"]:
        (root / target.lstrip("/")).mkdir(parents=True, exist_ok=True)
        _mount("-t", "tmpfs", *(["-o", options] if options else []), "tmpfs", str(root / target.lstrip("/")))
    for path in told["hide"]:
        place = root / path.lstrip("/")
        if place.exists():
            _mount("--bind", "/dev/null", str(place.resolve()))
    _mount("-t", "proc", "proc", str(root / "proc"))
    for device in ("null", "zero", "urandom"):
        (root / "dev" / device).touch(exist_ok=True)
        _mount("--bind", f"/dev/{device}", str(root / "dev" / device))
    if told["read_only"]:
        _mount("-o", "remount,bind,ro", str(root))
    os.chroot(root)
    os.chdir(told["folder"])
    _drop(*map(int, told["user"].split(":")))
    command = told["command"]
    os.execvpe(command[0], command, told["env"])


def _drop(user: int, group: int) -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    for capability in range(LAST_CAPABILITY + 1):
        prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)
    os.setgroups([])
    os.setresgid(group, group, group)
    os.setresuid(user, user, user)
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs")


def _mount(*words: str) -> None:
    subprocess.run(["mount", *words], check=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
