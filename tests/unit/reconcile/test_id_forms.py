"""What an id of an engine's form is: fixed words, letters and length of the rest; and how little an id may say to be believed by itself."""

from __future__ import annotations

import pytest

from gateway.reconcile.id_forms import form_of, identifying
from gateway.reconcile.known_ids import KnownIds
from gateway.reconcile.record import DispatchRecord


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("chatcmpl-0adc2896ac2cdafbbf37f789", "chatcmpl-55dc20a4455fc886c33d797e"),
        ("msg_116b88f173007be5e05df2a8", "msg_efe8f84985cffb940bc7cad6"),
        ("chatcmpl-tool-9f86d081884c7d659a2feaa0c55ad015", "chatcmpl-tool-60303ae22b998861bce3b28f33eec1be"),
        ("chatcmpl-1b4e28ba-2fa1-41d2-883f-0016d3cca427", "chatcmpl-6fa459ea-ee8a-4ca4-894e-db77e160355e"),
        ("chatcmpl-Qx7Lb2mVt9ZaKc4Rj8WnYe5Hd1Gf3PoU", "chatcmpl-aB3dE5fG7hJ9kL1mN2pQ4rS6tU8vW0xY"),
    ],
)
def test_ids_that_one_engine_gives_have_one_form(one: str, other: str) -> None:
    assert form_of(one) == form_of(other)
    assert identifying(one) and identifying(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("chatcmpl-0adc2896ac2cdafbbf37f789", "chatcmpl-0adc2896ac2cdafbbf37f7890"),
        ("msg_116b88f173007be5e05df2a8", "msg_01XFDUDYJgAACzvnptvVoYEL"),
        ("msg_116b88f173007be5e05df2a8", "resp_116b88f173007be5e05df2a8"),
        ("call_74196fe72e4cdc135c1033e0", "run_shell_command__run_shell_command_1796022272093_0"),
        ("9f86d081884c7d659a2feaa0c55ad015", "chatcmpl-9f86d081884c7d659a2feaa0c55ad015"),
    ],
)
def test_other_makers_ids_have_other_forms(one: str, other: str) -> None:
    assert form_of(one) != form_of(other)


@pytest.mark.parametrize("ident", ["", "chatcmpl-123", "chatcmpl-7", "functions.bash:0", "resp_failed", "call_1", "cmpl-8f3a21", "toolu_x"])
def test_ids_with_few_possibilities_name_nothing(ident: str) -> None:
    assert not identifying(ident)


def test_only_an_answers_id_of_a_form_that_was_seen_can_ring() -> None:
    known = KnownIds()
    known.learn(known.answer_forms, "chatcmpl-0adc2896ac2cdafbbf37f789")
    known.learn(known.part_forms, "call_74196fe72e4cdc135c1033e0")
    known.learn(known.answer_forms, "chatcmpl-12")

    def rings(**ids: object) -> str:
        return known.of_engines_form(DispatchRecord(agent="a", source="f:1", **ids))  # type: ignore[arg-type]

    assert rings(response_id="chatcmpl-ffdc2896ac2cdafbbf37f700")
    assert not rings(response_id="chatcmpl-99")
    assert not rings(response_id="msg_01XFDUDYJgAACzvnptvVoYEL", tool_call_ids=("call_ff196fe72e4cdc135c1033ff",))
    assert rings(tool_call_ids=("call_ff196fe72e4cdc135c1033ff",))
    assert not rings(tool_call_ids=("chatcmpl-ffdc2896ac2cdafbbf37f700",))
    assert not rings(request_ids=("call_ff196fe72e4cdc135c1033ff",))
