"""Judges where the listeners listen: agents must reach the data plane and nothing else. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Sequence

from gateway.doctor.line import Line, fail, ok, warn
from gateway.settings.declaration import Control, Data

ABOUT = "listeners"
Network = ipaddress.IPv4Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def networks_of(routes: str) -> tuple[Network, ...]:
    """The networks that this machine is on, from /proc/net/route."""
    found = []
    for line in routes.splitlines()[1:]:
        parts = line.split()
        if len(parts) >= 8 and parts[1] != "00000000" and parts[2] == "00000000":
            address, mask = (int.from_bytes(bytes.fromhex(word), "little") for word in (parts[1], parts[7]))
            found.append(Network((address, mask.bit_count())))
    return tuple(dict.fromkeys(found))


def listener_lines(data: Data, control: Control, networks: Sequence[Network]) -> Iterator[Line]:
    agents = _host(data.listen) if data.listen != "none" else None
    yield _data(data, agents)
    for named, listen in (("control.listen", control.listen), ("control.metrics_listen", control.metrics_listen)):
        if listen is not None:
            yield _control(named, listen, _host(listen), data, agents, networks)


def _data(data: Data, agents: Address | None) -> Line:
    check = "data.listen"
    if data.listen == "none":
        return ok(check, ABOUT, f"agents come in by {data.socket} alone")
    if agents is not None and agents.is_unspecified:
        return warn(
            check,
            ABOUT,
            f"{data.listen} is heard on every network of this machine, the operators' and the engines' too",
            "name the gateway's own address on the agents' network",
        )
    if agents is None:
        return warn(check, ABOUT, f"which network {data.listen} is on can't be judged by its name", "write the address itself")
    return ok(check, ABOUT, f"agents come in at {data.listen}")


def _control(named: str, listen: str, host: Address | None, data: Data, agents: Address | None, networks: Iterable[Network]) -> Line:
    mend = f"write an address of the operators' network in {named}" + (
        ", or leave it out: the control socket is always there" if named == "control.listen" else ""
    )
    if host is None:
        return warn(named, ABOUT, f"which network {listen} is on can't be judged by its name", "write the address itself")
    if host.is_unspecified:
        return fail(named, ABOUT, f"{listen} is heard on every network of this machine, the agents' too", mend)
    if data.listen == "none":
        return ok(named, ABOUT, f"{listen}; agents come in by a socket")
    if host.is_loopback:
        if agents is not None and agents.is_loopback:
            return warn(
                named,
                ABOUT,
                f"{listen}: agents that come in at {data.listen} can reach it too",
                "let agents come in by data.socket, or from a network of their own",
            )
        return ok(named, ABOUT, f"{listen}: this machine alone")
    if agents is None or agents.is_unspecified:
        return fail(
            named, ABOUT, f"{listen}: agents come in at {data.listen}, on this network too", "name the gateway's address on the agents' network in data.listen"
        )
    if host == agents or any(host in one and agents in one for one in networks):
        return fail(named, ABOUT, f"{listen} is on the network of {data.listen}, where agents are", mend)
    return ok(named, ABOUT, f"{listen} is on another network than {data.listen}")


def _host(listen: str) -> Address | None:
    """None for a name: what it means is not asked."""
    host = listen.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
    except ValueError:
        return None
