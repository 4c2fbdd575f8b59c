"""Policies are read at start and when it is asked for, all or none; a file that changes meanwhile changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.control.problems import Problem
from gateway.control.shelf import PolicyShelf
from gateway.errors import ConfigurationError
from gateway.policy.loading import LoadedPolicy, load_policy

TEXT = """
apis = ["openai.chat"]
[models.m]
counter = "bytes"
overhead_tokens = 10
[run]
requests = NUMBER
"""

Write = Callable[[str, int], str]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def written(name: str, requests: int) -> str:
        file = tmp_path / f"{name}.toml"
        file.write_text(TEXT.replace("NUMBER", str(requests)))
        return load_policy(file).hash

    return written


def keeps_all(_loaded: LoadedPolicy) -> None:
    """A gateway that can keep every policy."""


async def test_what_was_read_at_the_start_is_given_out_until_a_reload_and_it_is_said_that_the_file_is_another(tmp_path: Path, write: Write) -> None:
    before = write("pilot", 1)
    shelf = PolicyShelf(tmp_path, keeps_all)
    assert shelf.fill() == []
    assert (await shelf.take("pilot")).note == ""
    after = write("pilot", 2)
    taken = await shelf.take("pilot")
    assert taken.loaded.hash == before
    assert "pilot.toml" in taken.note and "policy reload" in taken.note
    reloaded = await shelf.reload()
    assert (reloaded.changed, reloaded.added, reloaded.removed) == (("pilot",), (), ())
    taken = await shelf.take("pilot.toml")
    assert (taken.loaded.hash, taken.note) == (after, "")


def test_a_folder_without_a_policy_is_said_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder, words in ((tmp_path, "holds no NAME.toml"), (tmp_path / "none", "is no folder"), (tmp_path / "file", "is no folder")):
        [line] = PolicyShelf(folder, keeps_all).fill()
        assert line.startswith(f"{folder} {words}")


@pytest.mark.parametrize("name", ["../policies/pilot", "My Policy", "", ".hidden"])
async def test_a_policy_is_named_as_campaigns_are(tmp_path: Path, name: str) -> None:
    (tmp_path / "My Policy.toml").write_text(TEXT.replace("NUMBER", "1"))
    with pytest.raises(Problem) as told:
        await PolicyShelf(tmp_path, keeps_all).take(name)
    assert told.value.status == 404
    assert "1 to 64 of a-z" in told.value.cause


async def test_one_wrong_file_keeps_all_the_others_as_they_were(tmp_path: Path, write: Write) -> None:
    before = write("pilot", 1)
    shelf = PolicyShelf(tmp_path, keeps_all)
    shelf.fill()
    write("pilot", 2)
    write("fresh", 3)
    (tmp_path / "wrong.toml").write_text("apis = []\nfoo = 1\n")
    (tmp_path / "worse.toml").write_text("= 1\n")
    with pytest.raises(ConfigurationError) as caught:
        await shelf.reload()
    told = str(caught.value)
    assert "wrong.toml:2: foo" in told and "worse.toml:1" in told
    assert (await shelf.take("pilot")).loaded.hash == before


async def test_a_policy_that_this_gateway_cant_keep_is_wrong_too(tmp_path: Path, write: Write) -> None:
    write("pilot", 1)

    def keeps_none(loaded: LoadedPolicy) -> None:
        raise ConfigurationError(f"{loaded.name}: no upstream serves it")

    shelf = PolicyShelf(tmp_path, keeps_none)
    assert shelf.fill() == ["pilot: no upstream serves it"]
    with pytest.raises(ConfigurationError):
        await shelf.reload()
    with pytest.raises(ConfigurationError):
        await shelf.take("pilot")


async def test_at_the_start_wrong_files_are_told_and_the_right_ones_are_there(tmp_path: Path, write: Write) -> None:
    right = write("pilot", 1)
    (tmp_path / "wrong.toml").write_text("apis = []\n")
    shelf = PolicyShelf(tmp_path, keeps_all)
    [reason] = [line for line in shelf.fill() if "apis" in line]
    assert "wrong.toml:1" in reason
    assert (await shelf.take("pilot")).loaded.hash == right


async def test_a_new_name_is_looked_for_on_the_disk_and_stays_as_it_was_found(tmp_path: Path, write: Write) -> None:
    shelf = PolicyShelf(tmp_path, keeps_all)
    shelf.fill()
    first = write("fresh", 1)
    assert (await shelf.take("fresh")).loaded.hash == first
    write("fresh", 2)
    taken = await shelf.take("fresh")
    assert taken.loaded.hash == first and taken.note


async def test_a_file_that_is_gone_serves_until_a_reload(tmp_path: Path, write: Write) -> None:
    gone = write("pilot", 1)
    write("other", 1)
    shelf = PolicyShelf(tmp_path, keeps_all)
    shelf.fill()
    (tmp_path / "pilot.toml").unlink()
    taken = await shelf.take("pilot")
    assert taken.loaded.hash == gone and taken.note
    reloaded = await shelf.reload()
    assert reloaded.removed == ("pilot",)
    assert reloaded.view() == {"policies": [{"policy": "other", "hash": reloaded.hashes["other"], "change": "same"}], "removed": ["pilot"]}
    with pytest.raises(Problem, match="no policy 'pilot'"):
        await shelf.take("pilot")


@pytest.mark.parametrize("name", ["", "..", "../pilot", "a/b", "/etc/passwd", "Pilot", "pilot\0", ".toml"])
async def test_a_name_is_no_path(tmp_path: Path, write: Write, name: str) -> None:
    write("pilot", 1)
    shelf = PolicyShelf(tmp_path / "below", keeps_all)
    (tmp_path / "below").mkdir()
    with pytest.raises(Problem) as caught:
        await shelf.take(name)
    assert (caught.value.status, caught.value.code) == (404, "not_found")
