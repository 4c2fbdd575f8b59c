"""What the gateway must know of each model server: facts, one file a server.

Rule: facts only. Nothing here sends, waits or decides, and no file knows of another.

* engine.py: `Engine`, the questions every server answers
* llamacpp.py: llama.cpp's own server
* vllm.py: vLLM
* sglang.py: SGLang
* ollama.py: Ollama
* generic.py: any server that speaks the OpenAI API and of which nothing more is known
* stripped.py: body fields that no engine gets
"""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.generic import GENERIC
from gateway.engines.llamacpp import LLAMA_CPP
from gateway.engines.ollama import OLLAMA
from gateway.engines.sglang import SGLANG
from gateway.engines.vllm import VLLM

ENGINES: Final[dict[str, Engine]] = {engine.kind: engine for engine in (LLAMA_CPP, VLLM, SGLANG, OLLAMA, GENERIC)}
"""The word in gateway.toml -> its facts."""
