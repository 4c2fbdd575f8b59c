"""Who an engine says it is."""

from __future__ import annotations

import hashlib
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gateway.upstream.identity import Identity, missing_models, read_identity

LISTED: dict[str, Any] = {
    "object": "list",
    "data": [{"id": "smollm2", "aliases": ["smollm2", "small"], "meta": {"n_ctx": 2048, "n_params": 134515008, "size": 96576768, "n_vocab": 49152}}],
}
PROPERTIES: dict[str, Any] = {
    "default_generation_settings": {"n_ctx": 4096, "params": {"temperature": 0.5, "top_k": 40, "stop": ["secret"], "chat_format": "x"}},
    "total_slots": 2,
    "model_alias": "smollm2",
    "model_path": "/home/somebody/models/x.gguf",
    "model_ftype": "Q4_1",
    "build_info": "b1-abc",
    "chat_template": "{{ messages }}",
}
SAID = {"/props": PROPERTIES}


def test_llama_cpp_tells_context_slots_build_and_template() -> None:
    identity = read_identity(LISTED, SAID)
    assert identity.models == ("smollm2", "small")
    assert identity.context_tokens == 4096
    fingerprint = dict(identity.fingerprint)
    assert len(str(fingerprint.pop("model_sha256"))) == 64
    template = hashlib.sha256(b"{{ messages }}").hexdigest()
    assert fingerprint.pop("sampling") == '{"temperature":0.5,"top_k":40}'
    assert fingerprint == {"model": "smollm2", "context_tokens": 4096, "slots": 2, "build": "b1-abc", "template_sha256": template}


def test_ollama_tells_the_weights_themselves_and_its_version() -> None:
    tags = {"models": [{"name": "qwen3:latest", "digest": "aa"}, {"name": "qwen3:8b", "digest": "bb"}, {"name": "other:1b", "digest": "cc"}]}
    identity = read_identity({"data": [{"id": "qwen3:latest"}]}, {"/api/version": {"version": "0.9"}, "/api/tags": tags}, ["qwen3", "qwen3:8b", "gone"])
    assert identity.fingerprint == {"model": "qwen3:latest", "build": "0.9", "digests": '{"qwen3":"aa","qwen3:8b":"bb"}'}


def test_names_that_the_engine_says_are_one_model_are_no_mismatch() -> None:
    assert read_identity(LISTED, {}).same("small", "smollm2")
    served = {"data": [{"id": "a", "root": "w"}, {"id": "b", "root": "w"}, {"id": "adapter", "root": "w", "parent": "a"}, {"id": "c", "root": "v"}]}
    vllm = read_identity(served, {"/version": {"version": "0.33"}})
    assert vllm.same("a", "b") and vllm.same("x", "x") and not vllm.same("a", "adapter") and not vllm.same("a", "c")
    assert vllm.fingerprint["build"] == "0.33"


def test_numbers_that_no_entry_can_hold_are_left_out() -> None:
    assert read_identity({"data": [{"id": "a", "max_model_len": 2**60}]}, {}).fingerprint == {"model": "a"}


def test_no_path_of_the_engines_machine_is_in_a_fingerprint() -> None:
    assert "somebody" not in str(read_identity(LISTED, SAID))


def test_other_weights_under_the_same_name_are_another_model() -> None:
    other = {"data": [{**LISTED["data"][0], "meta": {**LISTED["data"][0]["meta"], "size": 1}}]}
    assert read_identity(LISTED, SAID).fingerprint["model_sha256"] != read_identity(other, SAID).fingerprint["model_sha256"]


def test_a_plain_list_tells_names_and_a_context_where_it_is_told() -> None:
    identity = read_identity({"data": [{"id": "a", "max_model_len": 100}, {"id": "b"}]}, {})
    assert (identity.models, identity.context_tokens) == (("a", "b"), 100)


def test_a_declared_model_that_is_not_listed_is_told_and_an_empty_list_says_nothing() -> None:
    assert missing_models(["small", "other"], read_identity(LISTED, {})) == ("other",)
    assert missing_models(["other"], Identity(models=())) == ()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["data", "id", "meta", "aliases", "models", "name", "digest", "root", "chat_template", "n_ctx", "default_generation_settings"]),
            inner,
            max_size=4,
        )
    ),
)


@given(json, json)
def test_any_answer_is_read_without_raising(listed: object, properties: object) -> None:
    read_identity(listed, {"/props": properties, "/api/tags": properties, "/get_model_info": listed}, ["a"])
