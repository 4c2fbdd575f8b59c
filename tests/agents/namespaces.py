"""Two network namespaces and one wire between them: the gateway's, with its engine on a loopback of its own, and the agent's, which has no other neighbour.

A thread enters the gateway's namespace; whatever it starts or connects from there on belongs to it. The agent runs as nobody, in a mount namespace where its
home is `/home/agent` and the agents' programs are `/mnt/agents`. Only nftables, where it is installed, comes on top: the namespaces need no filter to be tight.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

CLONE_NEWNET = 0x40000000
NOBODY = 65534
GATEWAY = "10.231.0.1"
AGENT = "10.231.0.2"
PORT = 8080
_numbers = itertools.count()
_libc = ctypes.CDLL(None, use_errno=True)


def missing() -> str:
    """Why no namespaces can be made here; empty where they can."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for program in ("ip", "setpriv", "mount"):
        if shutil.which(program) is None:
            return f"{program} is not installed"
    tried = subprocess.run(["ip", "netns", "add", name := f"gwtry-{os.getpid()}"], capture_output=True, text=True, check=False)
    if tried.returncode:
        return f"no network namespace can be made: {tried.stderr.strip()}"
    ip(f"netns del {name}")
    return ""


@dataclass(slots=True)
class Namespaces:
    """`with Namespaces() as spaces:`; both are gone at the end."""

    gateway: str = ""
    agent: str = ""

    def __enter__(self) -> Self:
        mark = f"{os.getpid() % 100_000}-{next(_numbers)}"
        self.gateway, self.agent = f"gwg-{mark}", f"gwa-{mark}"
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for name in (self.agent, self.gateway):
            subprocess.run(["ip", "netns", "del", name], check=False)

    def _make(self) -> None:
        for name in (self.gateway, self.agent):
            ip(f"netns add {name}")
            ip(f"-n {name} link set lo up")
        ip(f"-n {self.gateway} link add wire type veth peer name wire netns {self.agent}")
        for name, address in ((self.gateway, GATEWAY), (self.agent, AGENT)):
            ip(f"-n {name} addr add {address}/30 dev wire")
            ip(f"-n {name} link set wire up")
        if shutil.which("nft"):
            self._filter()

    def _filter(self) -> None:
        rules = [
            f'iifname "wire" tcp dport {PORT} accept',
            'iifname "wire" ct state established accept',
            'iifname "wire" meta l4proto tcp reject with tcp reset',
            'iifname "wire" drop',
        ]
        table = "\n".join(["table inet agent {", "chain in {", "type filter hook input priority 0;", *rules, "}", "}"]) + "\n"
        subprocess.run(["ip", "netns", "exec", self.gateway, "nft", "-f", "-"], input=table, text=True, check=True)

    @contextmanager
    def inside(self, name: str = "") -> Iterator[None]:
        """This thread, and what it starts, is in the gateway's namespace, or in the one that is named."""
        with Path("/proc/thread-self/ns/net").open() as home, Path(f"/run/netns/{name or self.gateway}").open() as there:
            _enter(there.fileno())
            try:
                yield
            finally:
                _enter(home.fileno())

    def command(self, home: Path, programs: Path | None, command: Sequence[str], env: Mapping[str, str], *, user: int = NOBODY) -> list[str]:
        """A command as an agent runs it: nothing of this machine's environment, nor of its homes."""
        mounts = [
            "mount -t tmpfs tmpfs /home && mkdir /home/agent",
            f"mount --bind {shlex.quote(str(home))} /home/agent",
            "mount -t tmpfs tmpfs /mnt && mkdir /mnt/agents",
            *([f"mount --bind -o ro {shlex.quote(str(programs))} /mnt/agents"] if programs else []),
            "cd /home/agent/repo",
        ]
        clean = ["env", "-i", *(f"{name}={value}" for name, value in env.items())]
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        line = f"{' && '.join(mounts)} && exec {shlex.join([*(drop if user else []), *clean, *command])}"
        return ["ip", "netns", "exec", self.agent, "sh", "-c", line]


def _enter(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")


def ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True, capture_output=True, text=True)
