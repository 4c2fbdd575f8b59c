"""Where listeners may listen: the agents' network holds the data plane and nothing else."""

from __future__ import annotations

import pytest

from gateway.doctor.networks import Network, listener_lines, networks_of
from gateway.settings.declaration import Control, Data

ROUTES = """Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT
eth0\t00000000\t010A1EAC\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t000A1EAC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
eth1\t00141EAC\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0
"""
NETWORKS = (Network("172.30.10.0/24"), Network("172.30.20.0/24"))


def test_the_networks_of_a_machine_are_read_from_its_routes_without_the_default_one() -> None:
    assert networks_of(ROUTES) == NETWORKS


@pytest.mark.parametrize(
    ("data", "control", "status"),
    [
        ("172.30.10.2:8080", "172.30.20.2:9464", "ok"),
        ("172.30.10.2:8080", "127.0.0.1:9464", "ok"),
        ("172.30.10.2:8080", "172.30.10.2:9464", "fail"),
        ("172.30.10.2:8080", "172.30.10.77:9464", "fail"),
        ("172.30.10.2:8080", "0.0.0.0:9464", "fail"),
        ("172.30.10.2:8080", "[::]:9464", "fail"),
        ("0.0.0.0:8080", "172.30.20.2:9464", "fail"),
        ("0.0.0.0:8080", "127.0.0.1:9464", "ok"),
        ("127.0.0.1:8080", "127.0.0.1:9464", "warn"),
        ("localhost:8080", "127.0.0.1:9464", "warn"),
        ("172.30.10.2:8080", "metrics.internal:9464", "warn"),
        ("[fd00::1]:8080", "[fd00::1]:9464", "fail"),
        ("[fd00::1]:8080", "[fd01::1]:9464", "ok"),
    ],
)
def test_metrics_and_control_are_judged_alike_by_where_agents_come_in(data: str, control: str, status: str) -> None:
    for more in (Control(metrics_listen=control), Control(listen=control, token_env="TOKEN")):
        *_, line = listener_lines(Data(listen=data), more, NETWORKS)
        assert line.status == status and bool(line.mend) == (status != "ok"), line


@pytest.mark.parametrize(
    ("data", "status"), [("172.30.10.2:8080", "ok"), ("127.0.0.1:8080", "ok"), ("0.0.0.0:8080", "warn"), ("[::]:8080", "warn"), ("gateway:8080", "warn")]
)
def test_the_data_listener_on_every_network_is_a_warning_with_its_reason(data: str, status: str) -> None:
    (line,) = listener_lines(Data(listen=data), Control(), NETWORKS)
    assert line.status == status


def test_where_agents_come_in_by_a_socket_alone_no_address_is_theirs() -> None:
    data = Data.model_validate({"listen": "none", "socket": "agents.sock"})
    first, second = listener_lines(data, Control(metrics_listen="172.30.10.2:9464"), NETWORKS)
    assert (first.status, second.status) == ("ok", "ok")
