"""What is said of an engine, by what it showed: the cases that no mock engine and no llama.cpp makes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.accounting.usage import MeterSource, Reading, Usage
from gateway.doctor.context_lines import context_lines, tokenizer_lines
from gateway.doctor.engine_lines import engine_lines
from gateway.doctor.line import Line
from gateway.doctor.seen import EngineSeen, Left, Short
from gateway.errors import EngineFailure
from gateway.policy.loading import policy_from_text
from gateway.settings.declaration import UpstreamSettings
from gateway.upstream.at_work import Found
from gateway.upstream.identity import Identity
from gateway.upstream.marks import MODELS_PATH, Said, recognise
from gateway.upstream.probe import Probed

LISTING = Said(status=200, value={"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]})
SETTINGS = UpstreamSettings(address="http://10.0.0.1:8000", engine="vllm", models={"m": "m"})
PROBED = Probed(
    recognised=recognise({MODELS_PATH: LISTING}), identity=Identity(models=("m",)), context_tokens=4_096, health={"/health": Said(status=200)}, listing=LISTING
)
READING = Reading(usage=Usage(input_tokens=40, output_tokens=3), source=MeterSource.REPORTED, status=200, completed=True)
RIGHT = EngineSeen(probed=PROBED, model="m", short=Short(status=200, reading=READING), left=Left(found=Found.STOPPED, why="nothing at work"))


def said(seen: EngineSeen, settings: UpstreamSettings = SETTINGS, *, all_share: bool = False) -> dict[str, Line]:
    lines = list(engine_lines("e", settings, seen, all_share=all_share, credential=False))
    assert all(bool(line.mend) == (line.status != "ok") for line in lines)
    return {line.check: line for line in lines}


def test_a_right_engine_is_all_ok() -> None:
    assert {line.status.value for line in said(RIGHT).values()} == {"ok"}


@pytest.mark.parametrize(
    ("left", "status"),
    [
        (Left(found=Found.AT_WORK, why="1"), "fail"),
        (Left(found=Found.AT_WORK, why="1", lags=True), "warn"),
        (Left(found=Found.ONE_OF_SEVERAL, why="2"), "warn"),
        (Left(found=Found.CANNOT_BE_ASKED, why="no way"), "warn"),
        (Left(found=Found.NO_ANSWER, why="silent"), "warn"),
        (Left(why="the stream ended before its first content"), "warn"),
    ],
)
def test_what_cannot_be_seen_of_a_cancellation_is_a_warning_and_never_ok(left: Left, status: str) -> None:
    assert said(replace(RIGHT, left=left))["cancellation"].status == status


@pytest.mark.parametrize(
    ("failure", "mend"),
    [
        (EngineFailure("unreachable", "", "ClientConnectorCertificateError: SSL"), "ca_file"),
        (EngineFailure("died", "", "no HTTP"), "https://"),
        (EngineFailure("timeout", "connect"), "firewall"),
        (EngineFailure("unreachable"), "host and port"),
    ],
)
def test_an_engine_that_does_not_answer_is_mended_by_how_it_failed(failure: EngineFailure, mend: str) -> None:
    (line,) = said(EngineSeen(failure=failure)).values()
    assert line.status == "fail" and mend in line.mend


def test_a_kind_that_is_declared_otherwise_is_a_warning_that_names_it() -> None:
    line = said(RIGHT, SETTINGS.model_copy(update={"engine": "sglang"}))["identity"]
    assert (line.status, line.mend) == ("warn", 'set engine = "vllm"')


def test_a_shared_cache_is_a_warning_unless_every_policy_says_so() -> None:
    shared = SETTINGS.model_copy(update={"engine": "llama.cpp"})
    assert [said(RIGHT, shared, all_share=one)["cache_separation"].status.value for one in (False, True)] == ["warn", "ok"]
    assert said(RIGHT)["cache_separation"].status == "ok", "this one salts"


def test_a_call_that_is_refused_is_told_in_the_engines_words() -> None:
    line = said(replace(RIGHT, short=Short(status=501, reading=READING, said="no chat here"), left=None))["call"]
    assert line.status == "fail" and "501: no chat here" in line.text


@pytest.mark.parametrize(
    ("word", "count", "status"),
    [
        ("engine", 40, "ok"),
        ("engine", 41, "warn"),
        ("engine", "/tokenize answered 404", "fail"),
        ("bytes", 40, "ok"),
        ("bytes", 39, "fail"),
        ("tiktoken:o200k_base", 50, "ok"),
        ("tiktoken:o200k_base", 51, "warn"),
    ],
)
def test_a_counter_is_held_against_the_report_by_what_it_promises(word: str, count: int | str, status: str) -> None:
    (line,) = tokenizer_lines("e", replace(RIGHT, counts={(word, None): count}))
    assert line.status == status


@pytest.mark.parametrize(
    ("own", "model", "call", "status"),
    [
        (4_096, "context_tokens = 4096", "", "ok"),
        (4_096, "context_tokens = 4097", "", "fail"),
        (4_096, "", "prompt_tokens = 5000", "fail"),
        (None, "context_tokens = 4096", "", "ok"),
        (None, "", "", "warn"),
    ],
)
def test_a_context_is_held_against_every_size_that_a_policy_names(own: int | None, model: str, call: str, status: str) -> None:
    policy = policy_from_text(f'schema = 1\napis = ["openai.chat"]\n[models.m]\n{model}\n[call]\n{call}\n', "p.toml")
    seen = replace(RIGHT, probed=replace(PROBED, context_tokens=own))
    (line,) = context_lines("e", SETTINGS, seen, [policy])
    assert line.status == status
