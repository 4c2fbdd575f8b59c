"""By what a model server is told from others: paths that only it has, words that only it says. Pure.

No mark is asked for that would make a server work, and none of them is a proof: what is said is which marks were found.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from gateway.errors import EngineFailure

MODELS_PATH: Final = "/v1/models"
MARK_PATHS: Final = ("/props", "/get_model_info", "/version", "/api/version", "/info", "/openapi.json")
"""Asked beside the list of models. None of them generates anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """One answer, as far as it was read."""

    status: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    """Names in lower case."""
    value: object = None
    """Its JSON, or None."""
    failure: EngineFailure | None = None
    """There was no answer, and why."""

    @property
    def good(self) -> bool:
        """LM Studio answers paths that it lacks with 200 and an error."""
        return self.status == 200 and not (isinstance(self.value, Mapping) and self.value.get("error"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """One model server. `streams`: whether its chat streams report usage: `unasked`, `asked` or `never`; empty: not known."""

    name: str
    kind: str
    mark: Callable[[Mapping[str, Said]], str]
    """What tells it: words for a person; empty where nothing does."""
    version: Callable[[Mapping[str, Said]], object] = lambda _said: None
    streams: str = "asked"
    tokenizer: tuple[tuple[str, Mapping[str, object]], ...] = ()
    """Paths of its tokenizer, each with the smallest request that it takes."""
    of_chat: str = ""
    """The path that renders or counts a conversation, given its messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recognised:
    product: Product
    version: str = ""
    evidence: str = ""


def recognise(said: Mapping[str, Said]) -> Recognised:
    """The first whose mark is there: look-alikes stand behind what they look like."""
    for product in PRODUCTS:
        if evidence := product.mark(said):
            version = product.version(said)
            return Recognised(product=product, version=version if isinstance(version, str) else "", evidence=evidence)
    return Recognised(product=OTHER, evidence="no mark of a server that is known by name")


def _value(said: Mapping[str, Said], path: str, name: str) -> object:
    """Of an object in a good answer."""
    answer = said.get(path, Said())
    return answer.value.get(name) if answer.good and isinstance(answer.value, Mapping) else None


def _owner(said: Mapping[str, Said]) -> str:
    models = _value(said, MODELS_PATH, "data")
    first = models[0] if isinstance(models, list) and models else None
    owner = first.get("owned_by") if isinstance(first, Mapping) else None
    return owner if isinstance(owner, str) else ""


def _server(said: Mapping[str, Said]) -> str:
    return next((server for answer in said.values() if (server := answer.headers.get("server", ""))), "")


def _owned(word: str) -> Callable[[Mapping[str, Said]], str]:
    return lambda said: f"its models are owned by {word}" if _owner(said) == word else ""


def _llama_cpp(said: Mapping[str, Said]) -> str:
    if _value(said, "/props", "default_generation_settings") is not None:
        return "/props tells its settings"
    return "it calls itself llama.cpp" if _server(said) == "llama.cpp" else _owned("llamacpp")(said)


def _sglang(said: Mapping[str, Said]) -> str:
    return "/get_model_info tells its model" if _value(said, "/get_model_info", "model_path") else _owned("sglang")(said)


def _ollama(said: Mapping[str, Said]) -> str:
    return "/api/version tells its version" if _value(said, "/api/version", "version") else ""


def _tgi(said: Mapping[str, Said]) -> str:
    return "/info tells its limits" if _value(said, "/info", "model_id") and _value(said, "/info", "max_total_tokens") else ""


def _lm_studio(said: Mapping[str, Said]) -> str:
    for path, answer in sorted(said.items()):
        error = answer.value.get("error") if isinstance(answer.value, Mapping) else None
        if answer.status == 200 and isinstance(error, str) and error.startswith("Unexpected endpoint"):
            return f"{path} is answered with 200 and an error"
    return _owned("organization_owner")(said)


def _llama_cpp_python(said: Mapping[str, Said]) -> str:
    about = _value(said, "/openapi.json", "info")
    title = about.get("title") if isinstance(about, Mapping) else None
    return "its API calls itself llama.cpp Python" if isinstance(title, str) and "llama.cpp Python" in title else ""


def _transformers(said: Mapping[str, Said]) -> str:
    models = _value(said, MODELS_PATH, "data")
    first = models[0] if isinstance(models, list) and models else None
    status = first.get("status") if isinstance(first, Mapping) else None
    return "its models are local and have a status" if _owner(said) == "local" and isinstance(status, Mapping) else ""


def _mlx(said: Mapping[str, Said]) -> str:
    return "its server is Python's BaseHTTP" if _server(said).startswith("BaseHTTP") else ""


def _api_version(said: Mapping[str, Said]) -> object:
    about = _value(said, "/openapi.json", "info")
    return about.get("version") if isinstance(about, Mapping) else None


_TEXT: Final = "a"
_BY_TOKENIZE: Final = (("/tokenize", {"prompt": _TEXT}),)

PRODUCTS: Final = (
    Product(
        name="llama.cpp",
        kind="llama.cpp",
        mark=_llama_cpp,
        version=lambda said: _value(said, "/props", "build_info"),
        streams="unasked",
        tokenizer=(("/tokenize", {"content": _TEXT}),),
        of_chat="/apply-template",
    ),
    Product(name="SGLang", kind="sglang", mark=_sglang, tokenizer=_BY_TOKENIZE, of_chat="/tokenize"),
    Product(
        name="vLLM",
        kind="vllm",
        mark=_owned("vllm"),
        version=lambda said: _value(said, "/version", "version"),
        tokenizer=_BY_TOKENIZE,
        of_chat="/tokenize",
    ),
    Product(name="Ollama", kind="ollama", mark=_ollama, version=lambda said: _value(said, "/api/version", "version")),
    Product(name="TGI", kind="generic", mark=_tgi, version=lambda said: _value(said, "/info", "version"), tokenizer=(("/tokenize", {"inputs": _TEXT}),)),
    Product(name="LM Studio", kind="generic", mark=_lm_studio),
    Product(
        name="llama-cpp-python",
        kind="generic",
        mark=_llama_cpp_python,
        version=_api_version,
        streams="never",
        tokenizer=(("/extras/tokenize/count", {"input": _TEXT}),),
    ),
    Product(name="TabbyAPI", kind="generic", mark=_owned("tabbyAPI"), tokenizer=(("/v1/token/encode", {"text": _TEXT}),)),
    Product(name="transformers serve", kind="generic", mark=_transformers, streams="unasked"),
    Product(name="mlx-lm", kind="generic", mark=_mlx),
)
OTHER: Final = Product(
    name="a server that is not known by name",
    kind="generic",
    mark=lambda _said: "",
    streams="",
    tokenizer=(("/tokenize", {"prompt": _TEXT, "content": _TEXT, "inputs": _TEXT}), ("/extras/tokenize/count", {"input": _TEXT})),
)
