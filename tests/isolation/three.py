"""Three network namespaces in a row, as a deployment has them: the agent's, the gateway's, and beyond it the engine's, which is the outside too.

The gateway's forwards packets, as a host with containers does; nftables there drops what the agent's wire brings, but for the data listener. `open_` is the
same without the filter: what must fail in the one succeeds in the other.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.namespaces import AGENT, GATEWAY, NOBODY, Namespaces, ip

OPERATORS = "10.231.1.1"
"""The gateway's other side."""
ENGINE = "10.231.1.2"
ENGINE_PORT = 8081
OUTSIDE = "203.0.113.5"
"""An address for documentation: here it is one that answers, behind the gateway."""
CONTROL_PORT = 9465
METRICS_PORT = 9464
PYTHON = "/usr/bin/python3"
SELFTEST = Path(__file__).parents[2] / "gateway" / "client" / "selftest.py"
LISTENERS = """
import socket, struct, sys, threading
answer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
answer.bind((sys.argv[1], 53))
web = socket.create_server((sys.argv[2], 80))
threading.Thread(target=lambda: [web.accept()[0].close() for _ in iter(int, 1)], daemon=True).start()
print("ready outside=it", flush=True)
while True:
    asked, who = answer.recvfrom(512)
    head = asked[:2] + struct.pack(">HHHHH", 0x8180, 1, 1, 0, 0)
    answer.sendto(head + asked[12:] + b"\\xc0\\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + bytes((203, 0, 113, 5)), who)
"""
"""A name server that knows everything, and a listener on the outside's address."""


@dataclass(slots=True)
class Three(Namespaces):
    engine: str = ""
    open_: bool = False

    def __exit__(self, *_: object) -> None:
        super(Three, self).__exit__()
        subprocess.run(["ip", "netns", "del", self.engine], check=False, capture_output=True)

    def _make(self) -> None:
        super(Three, self)._make()
        self.engine = self.gateway.replace("gwg", "gwe")
        ip(f"netns add {self.engine}")
        ip(f"-n {self.engine} link set lo up")
        ip(f"-n {self.gateway} link add back type veth peer name back netns {self.engine}")
        for name, address in ((self.gateway, OPERATORS), (self.engine, ENGINE)):
            ip(f"-n {name} addr add {address}/30 dev back")
            ip(f"-n {name} link set back up")
        ip(f"-n {self.engine} addr add {OUTSIDE}/32 dev lo")
        ip(f"-n {self.engine} route add default via {OPERATORS}")
        ip(f"-n {self.gateway} route add default via {ENGINE}")
        subprocess.run(["ip", "netns", "exec", self.gateway, "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"], check=True)

    def _filter(self) -> None:
        if self.open_:
            return
        super(Three, self)._filter()
        rules = "table inet way { chain through { type filter hook forward priority 0; policy drop; }; }"
        subprocess.run(["ip", "netns", "exec", self.gateway, "nft", "-f", "-"], input=rules, text=True, check=True)

    def agent_route(self) -> None:
        """What root in the agent's namespace can do: a way out through the gateway."""
        ip(f"-n {self.agent} route replace default via {GATEWAY}")

    def tried(self, folder: Path, *words: str, user: int = NOBODY, network: str = "", keep: str = "") -> tuple[int, dict[str, Any]]:
        """The self-test as an agent runs it: one file, the system's Python, a name server in resolv.conf, none of this machine's sockets in sight.

        `keep`: a folder of this machine that the sandbox sees as /mnt.
        """
        (folder / "resolv.conf").write_text(f"nameserver {ENGINE}\n")
        mounts = [
            "mount -t tmpfs tmpfs /home",
            f"mount --bind {shlex.quote(str(folder / 'resolv.conf'))} /etc/resolv.conf",
            f"cp {SELFTEST} /home/selftest.py",
            *([f"mount --bind {shlex.quote(keep)} /mnt"] if keep else []),
            *(f"mount -t tmpfs tmpfs {place}" for place in ("/tmp", "/run")),
            "cd /home",
        ]
        drop = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--no-new-privs", "--inh-caps=-all", "--bounding-set=-all"]
        run = [*(drop if user else []), "env", "-i", "PATH=/usr/bin:/bin", PYTHON, "selftest.py", "--json", *words]
        command = ["ip", "netns", "exec", network or self.agent, "sh", "-c", f"{' && '.join(mounts)} && exec {shlex.join(run)}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=90, check=False)
        assert done.stdout, done.stderr
        return done.returncode, json.loads(done.stdout)


__all__ = ["AGENT", "GATEWAY", "Three"]
