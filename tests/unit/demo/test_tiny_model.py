"""The tiny model is the same file each time; what can't be started says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.demo import packages
from gateway.demo.engine import EngineSpec, RealEngine
from gateway.demo.engine_reading import EngineCounters, parse_counters
from gateway.demo.tiny_model import SHA256, make_tiny_model, sha256_of, tiny_model
from gateway.errors import ConfigurationError


def test_the_tiny_model_is_the_same_file_each_time(tmp_path: Path) -> None:
    assert sha256_of(make_tiny_model(tmp_path / "a.gguf")) == SHA256
    assert list(tmp_path.iterdir()) == [tmp_path / "a.gguf"]


def test_a_model_that_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "tiny-random.gguf"
    path.write_bytes(b"mine")
    assert tiny_model(tmp_path) == path and path.read_bytes() == b"mine"


def test_smollm2_is_found_in_its_package() -> None:
    assert packages.smollm2_path().suffix == ".gguf"


def test_a_missing_package_is_named_with_its_cause_and_mend() -> None:
    with pytest.raises(ConfigurationError) as caught:
        packages.require("xllamacpp_of_another_world")
    text = str(caught.value)
    assert "xllamacpp_of_another_world" in text and "cause:" in text and "pip install 'model-gateway[demo]'" in text


def test_a_missing_model_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"none\.gguf"):
        RealEngine(EngineSpec(model=tmp_path / "none.gguf", alias="x")).start()


def test_counters_are_read_and_told_apart_from_their_like() -> None:
    text = "# HELP a b\nllamacpp:prompt_tokens_total 21\nllamacpp:prompt_tokens_cached_total 5\nllamacpp:tokens_predicted_total 2e2\n"
    later = parse_counters(text)
    assert later == EngineCounters(prompt_tokens=21, output_tokens=200)
    assert later - EngineCounters(prompt_tokens=1, output_tokens=50) == EngineCounters(prompt_tokens=20, output_tokens=150)
    with pytest.raises(ValueError):
        parse_counters("llamacpp:prompt_tokens_total 21\n")
