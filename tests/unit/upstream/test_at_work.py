"""What an engine says it works on, and what follows from it for a call that was left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from gateway.engines import ENGINES
from gateway.upstream.at_work import PIECES_MAX, Found, Open, Work, found_of, read_work

LLAMA, VLLM, SGLANG = ENGINES["llama.cpp"], ENGINES["vllm"], ENGINES["sglang"]
BUSY: dict[str, Any] = {"id": 3, "is_processing": True, "id_task": 17, "params": {"max_tokens": 300, "n_predict": 300, "stream": True}}
IDLE: dict[str, Any] = {"id": 0, "n_ctx": 8192, "is_processing": False}
FINISHED: dict[str, Any] = {**IDLE, "id_task": 16, "params": {"n_predict": 300}}


def opened(ceiling: int = 300, pieces: int = 1, *, begun: bool = True) -> Open:
    return Open(ceiling=ceiling, pieces=pieces, begun=begun)


def slots(*given: object) -> bytes:
    return json.dumps(given).encode()


def test_of_llama_cpps_slots_those_that_process_count_with_their_task_and_ceiling() -> None:
    assert read_work(LLAMA, slots(IDLE, FINISHED, BUSY)) == (Work(17, 300),)
    assert read_work(LLAMA, slots(IDLE)) == ()
    assert read_work(LLAMA, slots({"id": 1, "is_processing": True, "params": {"n_predict": -1}})) == (Work(None, None),)


@pytest.mark.parametrize("answer", [b"", b"{}", b'{"error":{"code":501}}', b"[1]", b'[{"id":1}]', b'[{"is_processing":1}]', b"[", b"\xff"])
def test_what_is_no_list_of_slots_tells_nothing(answer: bytes) -> None:
    assert read_work(LLAMA, answer) is None


def test_gauges_are_summed_over_their_labels_and_names_and_no_others() -> None:
    text = (
        b'# HELP vllm:num_requests_running x\n# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine="0",model_name="a b}"} 2.0\n'
        b'vllm:num_requests_running{engine="1"} 1.0\nvllm:num_requests_waiting{engine="0"} 1.0\nvllm:num_requests_running_total 40\nother 9\n'
    )
    assert read_work(VLLM, text) == (Work(),) * 4
    assert read_work(SGLANG, b"sglang:num_running_reqs 0.0\nsglang:num_queue_reqs 0.0\n") == ()


@pytest.mark.parametrize("text", [b"", b"other 1\n", b"vllm:num_requests_running\n", b"vllm:num_requests_running x\n", b"vllm:num_requests_running -1\n"])
def test_metrics_without_the_gauges_tell_nothing(text: bytes) -> None:
    assert read_work(VLLM, text) is None


@pytest.mark.parametrize("number", ["+Inf", "NaN", "1e300"])
def test_a_number_that_is_none_costs_nothing(number: str) -> None:
    work = read_work(VLLM, f"vllm:num_requests_running {number}\n".encode())
    assert work is None or len(work) == PIECES_MAX


@pytest.mark.parametrize(
    ("work", "calls", "found"),
    [
        ([], [], Found.STOPPED),
        ([], [opened(begun=False)], Found.STOPPED),
        ([300], [], Found.AT_WORK),
        ([300], [opened()], Found.STOPPED),  # that piece is the other call's: it gives content
        ([300], [opened(begun=False)], Found.ONE_OF_SEVERAL),  # the other call may wait behind the left one
        ([300, 300], [opened()], Found.AT_WORK),
        ([300, 300], [opened(pieces=2)], Found.ONE_OF_SEVERAL),
        ([300, 300, 300], [opened(pieces=2)], Found.AT_WORK),
        ([299], [], Found.STOPPED),  # somebody else's: it asked for another ceiling
        ([299, 300], [opened(299)], Found.AT_WORK),
        ([300], [opened(299)], Found.AT_WORK),  # an open call with another ceiling explains nothing
        ([None], [], Found.AT_WORK),
        ([None], [opened(7)], Found.STOPPED),  # without ceilings every open call may explain it
        ([None, 300], [opened(7)], Found.AT_WORK),
    ],
)
def test_work_that_no_open_call_explains_is_the_left_calls(work: Sequence[int | None], calls: Sequence[Open], found: Found) -> None:
    assert found_of(300, 1, [Work(None, ceiling) for ceiling in work], calls) is found


def test_where_several_were_left_and_fewer_still_work_none_of_them_is_confirmed() -> None:
    assert found_of(300, 2, [Work(1, 300)], []) is Found.ONE_OF_SEVERAL
    assert found_of(300, 2, [Work(1, 300), Work(2, 300)], []) is Found.AT_WORK
    assert found_of(300, 2, [], []) is Found.STOPPED
