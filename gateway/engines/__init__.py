"""What the gateway must know of each model server: facts, one file a server.

Rule: facts only. Nothing here sends, waits or decides, and no file knows of another.

* engine.py: `Engine`, the questions every server answers
* llamacpp.py: llama.cpp's own server
* generic.py: any server that speaks the OpenAI API and of which nothing more is known
"""

from __future__ import annotations

from typing import Final

from gateway.engines.engine import Engine
from gateway.engines.generic import GENERIC
from gateway.engines.llamacpp import LLAMA_CPP

ENGINES: Final[dict[str, Engine]] = {engine.kind: engine for engine in (LLAMA_CPP, GENERIC)}
"""The word in gateway.toml -> its facts."""
