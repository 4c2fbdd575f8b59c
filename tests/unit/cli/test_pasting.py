"""What `run open` prints for an agent."""

import subprocess

import pytest

from gateway.cli.pasting import base_url, exports


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
