"""Default deny: one plain form of a path, and every other form is no path at all."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.dialects import FAMILIES
from gateway.proxy.routing import plain_path

PLAIN = {
    "/v1/chat/completions": "/v1/chat/completions",
    "/v1/chat/completions?": "/v1/chat/completions",
    "/v1/chat/completions?a=b": "/v1/chat/completions",
    "/v1/chat/completions?/../../slots": "/v1/chat/completions",
    "/v1/models?a?b": "/v1/models",
    "/slots": "/slots",
    "/a.b/c-d/_e": "/a.b/c-d/_e",
    "/.well-known/x": "/.well-known/x",
    "/...x": "/...x",
}
NOT_PLAIN = [
    "", "/", "*", "?", "v1/models", "//", "///", "//evil", "//evil/v1/models", "//evil.example/v1/chat/completions",
    "/v1/chat/completions/", "/v1//chat/completions", "/v1/chat//completions", "//v1/chat/completions", "/v1/chat/completions//",
    "/./v1/models", "/v1/./models", "/v1/../slots", "/v1/chat/completions/..", "/v1/chat/completions/.", "/../v1/models", "/.../v1/models", "/v1/....",
    "/v1/%63hat/completions", "/v1%2fmodels", "/v1%2Fmodels", "/%76%31/models", "/v1/models%00", "/v1/models%20", "/v1/%2e%2e/slots", "/%2e/v1/models",
    "/v1/models%3f", "/v1/models%23", "/v1/models%", "/v1/models%252e", "/v1/%u002e/models",
    "/v1/models;x", "/v1/models;x=y", "/v1;/models", "/v1/chat/completions;/../slots",
    "/v1\\models", "\\v1\\models", "/v1/..\\slots", "/v1/models\\", "/\\evil/v1/models",
    "/v1/models#", "/v1/models#x", "#", "/v1/models#?a",
    "http://127.0.0.1/v1/models", "https://gateway/v1/chat/completions", "HTTP://x/v1/models", "http:/v1/models", "file:///etc/passwd", "unix:/v1/models",
    "gateway:80", "10.0.0.1:443", "user@host", "/v1/models@evil", "/v1:models",
    "/v1/mödels", "/v1/models\u200b", "/ｖ1/models", "/v1／models", "/v1/mod\u0435ls", "/v1/models\udc80",
    "/v1/models ", " /v1/models", "/v1/mo dels", "/v1/models\t", "/v1/models\n", "/v1/models\r\n", "/v1/models\0", "/v1/models\n/x",
    "/v1/*", "/v1/models+", "/v1/models~", "/v1/models'", "/v1/models,", "/v1/models=", "/v1/models&", "/v1/$models", "/v1/(models)", "/v1/models!",
]  # fmt: skip


@pytest.mark.parametrize("target", PLAIN)
def test_a_plain_path_is_itself_and_its_query_is_dropped(target: str) -> None:
    assert plain_path(target) == PLAIN[target]


@pytest.mark.parametrize("target", NOT_PLAIN)
def test_a_path_in_any_other_form_is_none(target: str) -> None:
    assert plain_path(target) is None


DECLARED = sorted({path for _, path in FAMILIES})


@given(st.sampled_from(DECLARED), st.data())
@settings(max_examples=200, deadline=None)
def test_no_other_spelling_of_a_declared_path_is_that_path(path: str, data: st.DataObject) -> None:
    """Encode, double, dot, slash or extend it anywhere: it is either none or another path."""
    at = data.draw(st.integers(0, len(path)))
    change = data.draw(st.sampled_from(["/", "//", "/.", "/..", ".", "%2f", "%", ";", "\\", "#", "\0", " ", "\t", "A", "é", "@", ":", "*"]))
    assert plain_path(path[:at] + change + path[at:]) != path
    encoded = path[:at] + quote(path[at:][:1], safe="") + path[at + 1 :]
    assert encoded == path or plain_path(encoded) is None
    forced = path[:at] + "".join(f"%{ord(sign):02X}" for sign in path[at : at + 1]) + path[at + 1 :]
    assert forced == path or plain_path(forced) is None


@given(st.text(max_size=30) | st.text(alphabet="/.%?#;\\a", max_size=20))
@settings(max_examples=300, deadline=None)
def test_whatever_is_plain_is_a_rooted_path_that_no_normalisation_changes(target: str) -> None:
    path = plain_path(target)
    if path is None:
        return
    assert path.isascii() and path.startswith("/") and not path.endswith("/")
    assert not {"", ".", ".."} & set(path.split("/")[1:])
    assert not set("%?#;\\: ") & set(path)
    assert target.partition("?")[0] == path
    assert plain_path(path) == path


@given(st.text(max_size=30))
@settings(max_examples=100, deadline=None)
def test_a_query_changes_nothing(query: str) -> None:
    assert plain_path(f"/v1/models?{query}") == "/v1/models"
