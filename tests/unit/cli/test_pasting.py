"""What `run open` prints for an agent."""

import shutil
import subprocess
import sys

import pytest

from gateway.cli.pasting import base_url, called_as, exports


@pytest.mark.parametrize(
    ("address", "url"),
    [
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080/v1"),
        ("http://0.0.0.0:8080", "http://127.0.0.1:8080/v1"),
        ("http://[::]:8080", "http://[::1]:8080/v1"),
        ("http://[fd00::1]:8080", "http://[fd00::1]:8080/v1"),
        ("http://gpu-box:80", "http://gpu-box:80/v1"),
    ],
)
def test_an_address_to_listen_on_becomes_one_to_connect_to(address: str, url: str) -> None:
    assert base_url(address) == url


def test_each_lane_gets_its_own_export_line_that_a_shell_reads() -> None:
    lines = exports("http://127.0.0.1:8080", {"foreground": "gw-a", "background": "gw-b'$(id)"})
    script = "\n".join([*lines, 'printf "%s %s" "$OPENAI_BASE_URL" "$OPENAI_API_KEY"'])
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True, timeout=10)
    assert done.stdout == "http://127.0.0.1:8080/v1 gw-b'$(id)"
    assert [line for line in lines if line.startswith("#")] == ["# lane foreground", "# lane background"]


@pytest.mark.parametrize(
    ("found", "called", "told"),
    [
        ("/usr/bin/gateway", "/x/.venv/bin/gateway", "gateway"),
        (None, ".venv/bin/gateway", ".venv/bin/gateway"),
        (None, "/a b/gateway", "'/a b/gateway'"),
        (None, "/x/gateway/__main__.py", "/usr/bin/python3 -m gateway"),
    ],
)
def test_what_is_to_be_called_next_is_named_as_a_shell_finds_it(monkeypatch: pytest.MonkeyPatch, found: str | None, called: str, told: str) -> None:
    monkeypatch.setattr(shutil, "which", lambda _name: found)
    monkeypatch.setattr(sys, "argv", [called, "up"])
    monkeypatch.setattr(sys, "executable", "/usr/bin/python3")
    assert called_as() == told
