"""The salt of a prompt cache: one for those who may share, another for everybody else."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.engines import ENGINES
from gateway.proxy.salt import cache_salt

SECRET, OTHER = b"s" * 32, b"t" * 32


@pytest.mark.parametrize(("sharing", "same_campaign", "same_run"), [("campaign", True, True), ("run", False, True)])
def test_who_may_share_has_the_same_salt_and_nobody_else(sharing: Any, same_campaign: bool, same_run: bool) -> None:
    salt = cache_salt(SECRET, sharing, "a", "r1")
    assert len(salt) == 64 and salt != "a"
    assert (cache_salt(SECRET, sharing, "a", "r1") == salt) is same_run
    assert (cache_salt(SECRET, sharing, "a", "r2") == salt) is same_campaign
    assert cache_salt(SECRET, sharing, "b", "r1") != salt
    assert cache_salt(OTHER, sharing, "a", "r1") != salt, "without the secret it can't be worked out"


def test_a_run_is_no_campaign_of_the_same_name() -> None:
    assert cache_salt(SECRET, "campaign", "a", "x") != cache_salt(SECRET, "run", "a", "x")


def test_where_all_share_there_is_no_salt() -> None:
    assert cache_salt(SECRET, "all", "a", "r1") == ""


def test_an_engine_says_in_a_line_whether_it_can_keep_caches_apart() -> None:
    assert {kind for kind, engine in ENGINES.items() if engine.salted} == {"vllm", "sglang"}
    for engine in ENGINES.values():
        assert engine.salted <= engine.paths.keys() and bool(engine.salted) == bool(engine.salt_field)
        assert ("can't keep prompt caches apart" in engine.cache_sharing) == (not engine.salted)
    assert ENGINES["vllm"].cache_sharing.endswith("but not in anthropic.messages")
