"""What is refused unless the policy says otherwise, each thing under the name that policies have for it: `[guard] allow` lets it through, `strip` drops it.

The rule: a thing that can't be metered, or would never arrive, can't be allowed; one without which a call would say something else can't be stripped. Facts
alone: `guard.py` refuses, `stripping.py` strips.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

Harmless = tuple[object, ...]
"""Values of a field that ask for nothing and pass. Null always passes."""

_CONTENT: Final = "the call would go on without what it is about"
_ELSEWHERE: Final = "the agent would go on without the conversation that it refers to"
_OUR_OWN: Final = "upstreams come from gateway.toml alone"
_NO_HEADERS: Final = "no header of an agent reaches an engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class Barred:
    what: str
    """In the documentation."""
    fields: Mapping[str, Harmless] = field(default_factory=dict)
    """Of every format, at the top of a body and in its object of sampling parameters."""
    tools: tuple[str, ...] = ()
    """How the kinds of hosted tools begin."""
    never: str = ""
    """Why no policy can allow it."""
    stays: str = ""
    """Why it can't be stripped."""


BARRED: Final[Mapping[str, Barred]] = {
    # content that lies elsewhere
    "remote_images": Barred(what="pictures by their address", stays=_CONTENT),
    "remote_audio": Barred(what="sound by its address", stays=_CONTENT),
    "remote_video": Barred(what="films by their address", stays=_CONTENT),
    "remote_files": Barred(what="documents and files by their address", stays=_CONTENT),
    "remote_content": Barred(what="an address in a part of a message that this gateway does not know", stays=_CONTENT),
    "file_ids": Barred(
        what="files, recordings and stores of vectors by an id of the engine's",
        fields={"file_ids": ([],), "attachments": ([],), "tool_resources": ()},
        stays=_CONTENT,
    ),
    # state that outlives the call, or that another run could read
    "store": Barred(what="the engine keeps the answer", fields={"store": (False,)}),
    "background": Barred(
        what="the answer is made in the background", fields={"background": (False,)}, never="its usage is told to nobody, so nothing could be metered"
    ),
    "previous_response_id": Barred(what="goes on from an answer that the engine kept", fields={"previous_response_id": ("",)}, stays=_ELSEWHERE),
    "conversation": Barred(what="goes on in a conversation that the engine keeps", fields={"conversation": ()}, stays=_ELSEWHERE),
    "session_params": Barred(what="goes on in a session of the engine (SGLang)", fields={"session_params": ()}, stays=_ELSEWHERE),
    "item_references": Barred(what="items of a conversation by their ids", stays=_ELSEWHERE),
    "prompt_id": Barred(what="a prompt that is kept elsewhere", stays=_CONTENT),
    "context_management": Barred(what="the engine shortens the conversation by itself (Responses)"),
    "slots": Barred(what="a slot of the engine's choice of yours", fields={"id_slot": (-1,), "slot_id": (-1,)}),
    "cache_salt": Barred(what="whose prompt cache is used", fields={"cache_salt": (), "extra_key": ()}),
    "kv_transfer_params": Barred(
        what="where an engine gets its key-value cache from",
        fields={"kv_transfer_params": (), "ec_transfer_params": (), "bootstrap_host": (), "bootstrap_port": (), "bootstrap_room": ()},
    ),
    "conversation_headers": Barred(what="X-Conversation-Id, by which an answer goes on without its agent (llama.cpp)", never=_NO_HEADERS),
    "engine_headers": Barred(what="X-Data-Parallel-Rank and X-SGLExt-…, which steer an engine", never=_NO_HEADERS),
    # whose turn it is, and where
    "priority": Barred(what="goes before others in the engine's queue", fields={"priority": (0,)}),
    "data_parallel_rank": Barred(what="which of the engine's processes works", fields={"data_parallel_rank": (), "routed_dp_rank": ()}),
    "routing": Barred(
        what="another server, or another way there: api_base, base_url, X-Portkey-…, and the like",
        fields={
            **dict.fromkeys(("api_base", "base_url", "api_url", "api_key", "api_version", "custom_host", "custom_llm_provider", "extra_headers"), ()),
            "model_list": ([],), "fallbacks": ([],),
        },
        never=_OUR_OWN,
    ),
    # weights, adapters and code
    "lora": Barred(
        what="adapters (LoRA) by name or path",
        fields={
            "lora": ([],), "lora_path": (), "lora_adapters": ([],), "lora_id": (), "adapter": (), "adapters": (), "adapter_id": (),
        },
    ),
    "draft_model": Barred(what="a second model that the engine would load", fields={"draft_model": ()}),
    "logit_processors": Barred(
        what="code that changes the model's choices", fields={"custom_logit_processor": (), "logits_processors": ([],), "custom_params": ({},)}
    ),
    "chat_template": Barred(what="another template for the conversation", fields={"chat_template": ()}),
    "generation_config": Barred(what="a file of settings by its name", fields={"generation_config": ()}),
    "keep_alive": Barred(what="how long the model stays loaded (Ollama, LM Studio)", fields={"keep_alive": (), "ttl": ()}),
    "runner_options": Barred(what="options for which the model is loaded anew, for everybody (num_gpu, num_thread, context_length …)"),
    # the engine acts
    "hosted_tools": Barred(what="every tool that the engine would run, of whatever kind, and what came of it"),
    "web_search": Barred(what="a search of the web", fields={"web_search_options": (), "web_search": (False,)}, tools=("web_search",)),
    "web_fetch": Barred(what="pages of the web", tools=("web_fetch", "url_context")),
    "code_interpreter": Barred(what="code that the engine runs", fields={"container": ()}, tools=("code_interpreter", "code_execution")),
    "computer_use": Barred(what="a computer", tools=("computer",)),
    "file_search": Barred(what="a search in stored files", tools=("file_search",)),
    "image_generation": Barred(what="pictures that are made", tools=("image_generation",)),
    "mcp": Barred(what="servers of tools (MCP) and connectors", fields={"mcp_servers": ([],), "integrations": ([],)}, tools=("mcp",)),
    "shell": Barred(what="a shell", tools=("shell", "local_shell", "bash")),
    "text_editor": Barred(what="an editor of files", tools=("text_editor", "apply_patch")),
    "memory": Barred(what="a memory", tools=("memory",)),
    "tool_search": Barred(what="a search among tools", tools=("tool_search",)),
    "plugins": Barred(what="plugins", fields={"plugins": ([],)}),
    # work that no output cap bounds, or that is counted under another name
    "several_answers": Barred(
        what="more than one answer, where it could not be metered: n_cmpl, best_of, beams, n in formats of one answer",
        fields={"n_cmpl": (1,), "best_of": (1,), "use_beam_search": (False,)},
        never="what is made besides the answer is in no count",
    ),
    "unreported_answers": Barred(
        what="several answers, or answers to several prompts, in one piece from an engine that reports the first alone (llama.cpp): counted by their text",
        stays="the agent would get fewer answers than it asks for",
    ),
    "prompt_logprobs": Barred(what="probabilities of the prompt: work without output", fields={"prompt_logprobs": (False,)}),
    "echo": Barred(what="the prompt in the answer", fields={"echo": (False,)}),
    "prompt_embeds": Barred(what="a prompt as vectors, which nobody can count", fields={"prompt_embeds": ()}, stays=_CONTENT),
    "other_prompts": Barred(what="more prompt beside the prompt of a plain completion (images, input_extra …)", stays=_CONTENT),
    "hidden_states": Barred(
        what="inner states of the model in the answer (SGLang)", fields={"return_hidden_states": (False,), "return_routed_experts": (False,)}
    ),
    "debug_render": Barred(what="the rendered prompt instead of an answer (Ollama)", fields={"_debug_render_only": (False,)}),
    "request_format": Barred(
        what="@requestFormat, by which a body reaches another handler", fields={"@requestFormat": ()}, never="what it reaches is not metered"
    ),
}  # fmt: skip

_ONE_ANSWER: Final[Mapping[str, str]] = {"n": "several_answers"}
_OLLAMA: Final[Mapping[str, str]] = {"template": "chat_template", "n": "several_answers"}
OWN: Final[Mapping[str, Mapping[str, str]]] = {
    "openai.responses": {"prompt": "prompt_id", "context_management": "context_management", "multi_agent": "hosted_tools"},
    "openai.completions": dict.fromkeys(("image_data", "images", "input_extra", "input_prefix", "input_suffix", "multimodal_data"), "other_prompts"),
    "anthropic.messages": _ONE_ANSWER,
    "llamacpp.completion": _ONE_ANSWER,
    "ollama.chat": _OLLAMA,
    "ollama.generate": _OLLAMA,
    "ollama.embed": _OLLAMA,
    "sglang.generate": {"input_embeds": "prompt_embeds"},
    "lmstudio.chat": {"context_length": "runner_options"},
}
"""Format -> fields of its own, or with a meaning of its own, and what they are. A value that is empty, or one answer, asks for nothing."""
RUNNER_OPTIONS: Final = ("num_gpu", "main_gpu", "num_batch", "num_thread", "use_mmap", "use_mlock", "numa", "low_vram", "vocab_only", "f16_kv", "num_gqa")
"""Of Ollama's `options`: they load the model anew, for everybody."""
HOLDERS: Final[Mapping[str, str]] = {
    "ollama.chat": "options",
    "ollama.generate": "options",
    "ollama.embed": "options",
    "sglang.generate": "sampling_params",
    "tgi.generate": "parameters",
    "tgi.generate_stream": "parameters",
}
"""Format -> its object of sampling parameters, which is held to the same."""

GUARDED: Final[Mapping[str, Harmless]] = {name: harmless for thing in BARRED.values() for name, harmless in thing.fields.items()}
"""Field of any format -> its harmless values."""
THING_OF: Final[Mapping[str, str]] = {field: name for name, thing in BARRED.items() for field in thing.fields}
"""Field of any format -> the thing that it is."""

REMOTE: Final[Mapping[str, str]] = {
    **dict.fromkeys(("image_url", "input_image", "image", "image_data", "computer_screenshot"), "remote_images"),
    **dict.fromkeys(("input_audio", "audio_url", "audio", "audio_data"), "remote_audio"),
    **dict.fromkeys(("video_url", "input_video", "video", "video_data"), "remote_video"),
    **dict.fromkeys(("file", "input_file", "document"), "remote_files"),
}
"""Kind of a part of a message -> what an address in it is."""
_TOOLS: Final = tuple((beginning, name) for name, thing in BARRED.items() for beginning in thing.tools)


def tool_thing(kind: str) -> str:
    """What a hosted tool of this kind is: kinds bear dates, and new ones come."""
    return next((name for beginning, name in _TOOLS if kind.startswith(beginning)), "hosted_tools")


def asks(name: str, value: object) -> bool:
    """A field of any format asks for what it stands for."""
    return value is not None and not any(value == harmless and type(value) is type(harmless) for harmless in GUARDED[name])


def own_asks(name: str, value: object) -> bool:
    """The same of a field of one format's own."""
    return bool(value) and not (name == "n" and value == 1 and type(value) is int)


def mend(name: str) -> str:
    """Which key of the policy would let a call with it pass."""
    thing, word = BARRED[name], f'["{name}"]'
    if thing.never:
        return f"guard.strip = {word} of the policy would drop it" if not thing.stays else "no policy can allow it"
    allowed = f"guard.allow = {word} of the policy would let it through"
    return allowed if thing.stays else f"{allowed}, guard.strip = {word} would drop it"


def key_of(name: str) -> str:
    """The policy key that would allow it, or, where none can, drop it."""
    return f'guard.{"strip" if BARRED[name].never else "allow"} = ["{name}"]'


@dataclass(frozen=True, slots=True)
class Allowed:
    """What one policy lets through, by its names, and how large a piece of content may be that stands in a body as text."""

    names: frozenset[str] = frozenset()
    inline_bytes: int | None = None

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def hosts(self, kind: str) -> bool:
        """Whether a hosted tool of this kind may be offered."""
        return "hosted_tools" in self.names or tool_thing(kind) in self.names


NOTHING: Final = Allowed()


def fields_of(names: frozenset[str]) -> frozenset[str]:
    return frozenset(name for name, thing in THING_OF.items() if thing in names)


CLIENT_TOOLS: Final = frozenset({"function", "custom"})
"""Tools that the agent runs itself. Every other kind is hosted: the engine would act."""
_RESPONSES_TOOLS: Final = CLIENT_TOOLS | {"local_shell", "apply_patch"}


def hosted_kind(tool: Mapping[str, Any], dialect: str) -> str | None:
    """The kind of a tool that the engine would run; None: the agent runs it itself, or it is none."""
    kind = tool.get("type", "function")
    if not isinstance(kind, str):
        return None
    match dialect, kind:
        case "openai.responses", "shell":
            environment = tool.get("environment")
            is_clients = isinstance(environment, dict) and environment.get("type") == "local"
        case "openai.responses", "tool_search":
            is_clients = tool.get("execution") == "client"
        case "openai.responses", _:
            is_clients = kind in _RESPONSES_TOOLS
        case "anthropic.messages", "function":
            is_clients = "type" not in tool
        case _:
            is_clients = kind in CLIENT_TOOLS
    return None if is_clients else kind
