"""A gateway gives itself the files that its bounds need, as far as it may."""

from __future__ import annotations

import resource
from collections.abc import Iterator

import pytest

from gateway.settings.loading import settings_from_text
from gateway.settings.open_files import SPARE, allow_files, files_needed

BOUNDS = """
[bounds]
max_connections = 100
helper_calls = 3
[upstreams.a]
address = "http://127.0.0.1:1"
slots = 7
models = { m = "m" }
"""


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def soft(limit: int) -> int:
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return limit


def test_connections_slots_and_what_else_is_open_are_counted() -> None:
    assert files_needed(settings_from_text(BOUNDS, "/x/gateway.toml").table) == 100 + 7 + 3 + 1 + SPARE


def test_the_soft_limit_is_raised_to_what_is_needed_and_never_lowered() -> None:
    soft(400)
    assert allow_files(500) == 500 == resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    assert allow_files(300) == 500 == resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def test_not_above_the_hard_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    soft(400)
    assert allow_files(hard + 1) == hard
