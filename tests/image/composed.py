"""compose.yaml as namespaces: each network a bridge, each service a network namespace with the addresses, mounts, user and rights that the file gives it."""

from __future__ import annotations

import ipaddress
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from tests.agents.namespaces import Namespaces, ip
from tests.image.building import ROOT

RUNNER = Path(__file__).with_name("container.py")
SHELLS = ("/bin/sh", "/bin/dash", "/bin/bash", "/usr/bin/sh", "/usr/bin/dash", "/usr/bin/bash")


@dataclass(slots=True)
class Composed:
    """`with Composed(…) as composed:` the networks are there; processes are the caller's."""

    folder: Path
    """Where named volumes are."""
    names: dict[str, str] = field(default_factory=dict)
    """Service -> its network namespace."""
    file: dict[str, Any] = field(default_factory=lambda: yaml.safe_load((ROOT / "compose.yaml").read_text()))
    _switch: str = ""

    def __enter__(self) -> Self:
        mark = os.getpid() % 100_000
        self._switch = f"gwc-{mark}"
        try:
            ip(f"netns add {self._switch}")
            for network in self.file["networks"]:
                ip(f"-n {self._switch} link add {network} type bridge")
                ip(f"-n {self._switch} link set {network} up")
            for number, service in enumerate(self.file["services"]):
                self.names[service] = f"gwc-{mark}-{number}"
                self._join(service, number)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self.names.values(), self._switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)

    def _join(self, service: str, number: int) -> None:
        name = self.names[service]
        ip(f"netns add {name}")
        ip(f"-n {name} link set lo up")
        for index, network in enumerate(self.file["services"][service]["networks"]):
            end = f"v{number}-{index}"
            ip(f"-n {name} link add {network} type veth peer name {end} netns {self._switch}")
            ip(f"-n {self._switch} link set {end} master {network}")
            ip(f"-n {self._switch} link set {end} up")
            ip(f"-n {name} addr add {self.address(service, network)} dev {network}")
            ip(f"-n {name} link set {network} up")

    def address(self, service: str, network: str) -> str:
        """With its prefix. One that the file leaves open is far up in the subnet."""
        subnet = ipaddress.ip_network(self.file["networks"][network]["ipam"]["config"][0]["subnet"])
        named = self.file["services"][service]["networks"]
        given = named[network]["ipv4_address"] if isinstance(named, dict) else str(subnet[100 + list(self.names).index(service)])
        assert ipaddress.ip_address(given) in subnet
        return f"{given}/{subnet.prefixlen}"

    def inside(self, service: str) -> Any:
        """For `with`: what is started there belongs to that service's network."""
        return Namespaces().inside(self.names[service])

    def command(self, service: str, root: Path, config: Mapping[str, Any], *, without_shell: bool = False) -> list[str]:
        """How a container engine would start that service over an image of these files and this configuration."""
        told = self.file["services"][service]
        assert told["cap_drop"] == ["ALL"] and "no-new-privileges:true" in told["security_opt"]
        document = {
            "root": str(root),
            "binds": [self._bind(one, root, told["user"]) for one in told.get("volumes", ())],
            "tmpfs": [(one.partition(":")[0], one.partition(":")[2]) for one in told.get("tmpfs", ())],
            "hide": SHELLS if without_shell else (),
            "read_only": told["read_only"],
            "folder": config.get("WorkingDir") or "/",
            "user": told["user"],
            "command": [*(config.get("Entrypoint") or ()), *(told.get("command") or config.get("Cmd") or ())],
            "env": dict(one.split("=", 1) for one in config.get("Env") or ["PATH=/usr/bin:/bin"]),
        }
        return ["ip", "netns", "exec", self.names[service], sys.executable, str(RUNNER), json.dumps(document)]

    def executed(self, pid: int, service: str, config: Mapping[str, Any], command: Sequence[str]) -> subprocess.CompletedProcess[str]:
        """In the container that runs, as its user."""
        user, group = self.file["services"][service]["user"].split(":")
        env = dict(one.split("=", 1) for one in config["Env"])
        enter = ["nsenter", f"--target={pid}", "--mount", "--net", "--root", "--wd", f"--setgid={group}", f"--setuid={user}", "--"]
        return subprocess.run([*enter, *command], env=env, capture_output=True, text=True, timeout=60, check=False)

    def _bind(self, volume: str, root: Path, user: str) -> tuple[str, str, str]:
        source, target, *options = volume.split(":")
        if source.startswith("."):
            return str((ROOT / source).resolve()), target, "".join(options)
        folder = self.folder / source
        if not folder.exists():  # a new volume has owner and mode of what the image has there
            there = (root / target.lstrip("/")).stat()
            folder.mkdir()
            os.chown(folder, there.st_uid, there.st_gid)
            folder.chmod(there.st_mode & 0o7777)
        assert f"{folder.stat().st_uid}:{folder.stat().st_gid}" == user, volume
        return str(folder), target, "".join(options)
