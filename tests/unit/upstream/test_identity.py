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
    "default_generation_settings": {"n_ctx": 4096},
    "total_slots": 2,
    "model_alias": "smollm2",
    "model_path": "/home/somebody/models/x.gguf",
    "model_ftype": "Q4_1",
    "build_info": "b1-abc",
    "chat_template": "{{ messages }}",
}


def test_llama_cpp_tells_context_slots_build_and_template() -> None:
    identity = read_identity(LISTED, PROPERTIES)
    assert identity.models == ("smollm2", "small")
    assert identity.context_tokens == 4096
    fingerprint = dict(identity.fingerprint)
    assert len(str(fingerprint.pop("model_sha256"))) == 64
    template = hashlib.sha256(b"{{ messages }}").hexdigest()
    assert fingerprint == {"model": "smollm2", "context_tokens": 4096, "slots": 2, "build": "b1-abc", "template_sha256": template}


def test_no_path_of_the_engines_machine_is_in_a_fingerprint() -> None:
    assert "somebody" not in str(read_identity(LISTED, PROPERTIES))


def test_other_weights_under_the_same_name_are_another_model() -> None:
    other = {"data": [{**LISTED["data"][0], "meta": {**LISTED["data"][0]["meta"], "size": 1}}]}
    assert read_identity(LISTED, PROPERTIES).fingerprint["model_sha256"] != read_identity(other, PROPERTIES).fingerprint["model_sha256"]


def test_a_plain_list_tells_names_and_a_context_where_it_is_told() -> None:
    identity = read_identity({"data": [{"id": "a", "max_model_len": 100}, {"id": "b"}]}, None)
    assert (identity.models, identity.context_tokens) == (("a", "b"), 100)


def test_a_declared_model_that_is_not_listed_is_told_and_an_empty_list_says_nothing() -> None:
    assert missing_models(["small", "other"], read_identity(LISTED, None)) == ("other",)
    assert missing_models(["other"], Identity(models=())) == ()


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["data", "id", "meta", "aliases", "chat_template", "n_ctx", "default_generation_settings"]), inner, max_size=4)
    ),
)


@given(json, json)
def test_any_answer_is_read_without_raising(listed: object, properties: object) -> None:
    read_identity(listed, properties)
