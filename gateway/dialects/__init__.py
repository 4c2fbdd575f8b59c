"""What the gateway must know of each wire format: what a body asks for, what an event means, how refusals and cuts are worded.

Rule: pure, and no format knows of another; what several share stands in modules of its own. Meter, never translate: agent and engine speak the same format.

* dialect.py: `Dialect`, the questions that every format answers, and the data that goes in and out
* openai_chat.py: OpenAI chat completions
* openai_messages.py: the messages of such a body: their texts, and what may stand in them
* openai_chunks.py: reads the answers of OpenAI chat: chunks and bodies
* openai_answer.py: what was delivered: text, reasoning, tool calls, finish reasons
* openai_counts.py: which of an answer's reports stands
* openai_usage.py: one report: a `usage` object, or llama.cpp's `timings`
* openai_replies.py: the OpenAI form of refusals, errors and the list of models
* answer_errors.py: errors in an engine's answer, in all their forms
* guard.py: what no body may hold unless the policy allows it
* body_fields.py: reading a body's fields by type
* body_record.py: what stands on record of a body
* received.py: a body as it came, and the proof that its bytes are plainly written
* structure.py: how many members a body has, how deep it goes
* known.py: the beginning of a conversation that was read before
* digests.py: SHA-256 of texts that begin alike
* field_spans.py: where each top-level field of a body stands in its bytes
* json_text.py: JSON as servers really write it
* retry_words.py: words that a final refusal must not hold
"""

from __future__ import annotations

from typing import Final

from gateway.dialects.dialect import Dialect
from gateway.dialects.openai_chat import OpenAIChat

DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in (OpenAIChat(),)}
"""A format's name, as policies write it -> the format."""

FAMILIES: Final[dict[tuple[str, str], str]] = {
    ("POST", "/v1/chat/completions"): "openai.chat",
    ("GET", "/v1/models"): "openai.models",
}
"""Method and path -> name. `openai.models` is a list of what is declared (`openai_replies.models_reply`): no call, and no format of its own."""
