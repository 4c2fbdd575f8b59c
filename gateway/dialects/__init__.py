"""What the gateway must know of each wire format: what a body asks for, what an event means, how refusals and cuts are worded.

Rule: pure, and no format knows of another; what several share stands in modules of its own. Meter, never translate: agent and engine speak the same format.

* dialect.py: `Dialect`, the questions that every format answers, and the data that goes in and out
* openai_chat.py: OpenAI chat completions
* openai_messages.py: the messages of a chat body: their texts, and what may stand in them
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
* utilities.py: requests that do no model work
* openai_settings.py: the settings of an OpenAI-shaped body, and a body as it is sent on
* openai_answer.py: what was delivered: text, reasoning, tool calls, finish reasons
* openai_counts.py: which of an answer's reports stands
* openai_usage.py: one report: a `usage` object, or llama.cpp's `timings`
* readings.py: what a reader says of an answer, made in one place
* usage_report.py: one report of counts, whatever a format calls its numbers
* body_proof.py: whether a request that somebody rebuilt is the one on record
* output_caps.py: names under which a body may set how much an engine makes
* anthropic_messages.py: Anthropic Messages
* anthropic_body.py: what its bodies hold
* anthropic_events.py: reads its answers
* anthropic_replies.py: its form of refusals, errors and the list of models
* ollama.py: Ollama's own API: chat, generate, embed
* ollama_body.py: what its bodies hold
* ollama_lines.py: reads its answers
* llamacpp_native.py: llama.cpp's own API: completion and embedding
* llamacpp_events.py: reads its answers
* sglang_generate.py: SGLang's own API
* tgi_generate.py: TGI's own API
* lmstudio_chat.py: LM Studio's own API
* marked_reader.py: the frame of readers of formats whose success has a marker of its own
* vector_reader.py: reads bodies of vectors in them
* plain_prompt.py: a prompt that no template renders
* native_replies.py: refusals and errors of servers' own formats
* openai_replies.py: the OpenAI form of refusals, errors and the list of models
* answer_errors.py: errors in an engine's answer, in all their forms
* barred.py: what is refused unless the policy says otherwise, by the names that policies have for it
* guard.py: refuses it
* spelling.py: names that only their case sets apart from one that means something
* stripping.py: takes it out of a body instead
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

from gateway.dialects.anthropic_messages import AnthropicMessages, CountTokens
from gateway.dialects.dialect import Dialect
from gateway.dialects.llamacpp_native import LlamaCppCompletion, LlamaCppEmbedding
from gateway.dialects.lmstudio_chat import LmStudioChat
from gateway.dialects.ollama import OllamaChat, OllamaEmbed, OllamaGenerate
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.dialects.openai_responses import OpenAIResponses
from gateway.dialects.rerank import Rerank
from gateway.dialects.sglang_generate import SglangGenerate
from gateway.dialects.tgi_generate import TgiGenerate
from gateway.dialects.utilities import Numbers, Texts, Utility

_ALL: Final[tuple[Dialect, ...]] = (
    OpenAIChat(),
    OpenAICompletions(),
    OpenAIResponses(),
    OpenAIEmbeddings(),
    Rerank(),
    AnthropicMessages(),
    OllamaChat(),
    OllamaGenerate(),
    OllamaEmbed(),
    LlamaCppCompletion(),
    LlamaCppEmbedding(),
    SglangGenerate(),
    TgiGenerate("tgi.generate", streams=False),
    TgiGenerate("tgi.generate_stream", streams=True),
    LmStudioChat(),
)
DIALECTS: Final[dict[str, Dialect]] = {dialect.name: dialect for dialect in _ALL}
"""A format's name, as policies write it -> the format."""

UTILITIES: Final[dict[str, Utility]] = {utility.name: utility for utility in (Texts(), Numbers(), CountTokens())}
"""Requests that do no model work: no calls."""

FAMILIES: Final[dict[tuple[str, str], str]] = {
    ("POST", "/v1/chat/completions"): "openai.chat",
    ("POST", "/v1/completions"): "openai.completions",
    ("POST", "/v1/responses"): "openai.responses",
    ("POST", "/v1/embeddings"): "openai.embeddings",
    ("POST", "/v1/rerank"): "rerank",
    ("POST", "/v1/messages"): "anthropic.messages",
    ("POST", "/api/chat"): "ollama.chat",
    ("POST", "/api/generate"): "ollama.generate",
    ("POST", "/api/embed"): "ollama.embed",
    ("POST", "/completion"): "llamacpp.completion",
    ("POST", "/completions"): "llamacpp.completion",
    ("POST", "/embedding"): "llamacpp.embedding",
    ("POST", "/generate"): "sglang.generate",
    ("POST", "/generate_stream"): "tgi.generate_stream",
    ("POST", "/api/v1/chat"): "lmstudio.chat",
    ("POST", "/tokenize"): "tokenize",
    ("POST", "/detokenize"): "detokenize",
    ("POST", "/v1/messages/count_tokens"): "anthropic.count_tokens",
    ("GET", "/api/tags"): "ollama.tags",
    ("GET", "/v1/models"): "openai.models",
}
"""Method and path -> name. `openai.models` is a list of what is declared (`openai_replies.models_reply`): no call, and no format of its own."""

ALSO: Final[dict[tuple[str, str], str]] = {("POST", "/generate"): "tgi.generate"}
"""Two servers' formats share this path: a policy that declares this one, and not the other, has this one there."""
