"""What the gateway must know of each wire format: what a body asks for, what an event means, how refusals and cuts are worded.

Rule: pure, and no format knows of another; what several share stands in modules of its own. Meter, never translate: agent and engine speak the same format.

* dialect.py: `Dialect`, the questions that every format answers, and the data that goes in and out
* openai_chat.py: OpenAI chat completions
* openai_completions.py: OpenAI plain completions
* openai_responses.py: OpenAI Responses
* openai_embeddings.py: OpenAI embeddings
* rerank.py: rerank
* openai_chunks.py: reads the answers of OpenAI chat and completions: chunks and bodies
* responses_body.py: the items and tools of a Responses body
* responses_events.py: reads the answers of Responses: events and bodies
* responses_replies.py: the Responses form of refusals, errors and ends
* input_answer.py: reads answers in which nothing was generated
* prompts.py: prompts where no template is used
* openai_settings.py: the settings of an OpenAI-shaped body, and a body as it is sent on
* openai_answer.py: what was delivered: text, reasoning, tool calls, finish reasons
* openai_counts.py: which of an answer's reports stands
* openai_usage.py: one report: a `usage` object, or llama.cpp's `timings`
* usage_report.py: one report of counts, whatever a format calls its numbers
* output_caps.py: names under which a body may set how much an engine makes
* openai_replies.py: the OpenAI form of refusals, errors and the list of models
* answer_errors.py: errors in an engine's answer, in all their forms
* guard.py: what no body may hold unless the policy allows it
* body_fields.py: reading a body's fields by type
* body_record.py: what stands on record of a body
* field_spans.py: where each top-level field of a body stands in its bytes
* json_text.py: JSON as servers really write it
* retry_words.py: words that a final refusal must not hold
"""

from __future__ import annotations

from typing import Final

from gateway.dialects.dialect import Dialect
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.dialects.openai_responses import OpenAIResponses
from gateway.dialects.rerank import Rerank

_ALL: Final[tuple[Dialect, ...]] = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    OpenAIEmbeddings(),
    Rerank(),
)
DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in _ALL}
"""A format's name, as policies write it -> the format."""

FAMILIES: Final[dict[tuple[str, str], str]] = {
    ("POST", "/v1/chat/completions"): "openai.chat",
    ("POST", "/v1/completions"): "openai.completions",
    ("POST", "/v1/responses"): "openai.responses",
    ("POST", "/v1/embeddings"): "openai.embeddings",
    ("POST", "/v1/rerank"): "rerank",
    ("GET", "/v1/models"): "openai.models",
}
"""Method and path -> name. `openai.models` is a list of what is declared (`openai_replies.models_reply`): no call, and no format of its own."""
