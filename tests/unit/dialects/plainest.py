"""The least that a body of each format can be."""

from __future__ import annotations

from typing import Any

SAY: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
PLAINEST: dict[str, dict[str, Any]] = {
    "openai.chat": {"model": "m", "messages": SAY},
    "openai.completions": {"model": "m", "prompt": "hi"},
    "openai.responses": {"model": "m", "input": "hi"},
    "openai.embeddings": {"model": "m", "input": "hi"},
    "rerank": {"model": "m", "query": "q", "documents": ["a", "b"]},
    "anthropic.messages": {"model": "m", "messages": SAY, "max_tokens": 8},
    "ollama.chat": {"model": "m", "messages": SAY},
    "ollama.generate": {"model": "m", "prompt": "hi"},
    "ollama.embed": {"model": "m", "input": "hi"},
    "llamacpp.completion": {"model": "m", "prompt": "hi"},
    "llamacpp.embedding": {"model": "m", "content": "hi"},
    "sglang.generate": {"model": "m", "text": "hi"},
    "tgi.generate": {"model": "m", "inputs": "hi"},
    "tgi.generate_stream": {"model": "m", "inputs": "hi"},
    "lmstudio.chat": {"model": "m", "input": "hi"},
}
