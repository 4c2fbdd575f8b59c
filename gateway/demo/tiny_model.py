"""A tiny random language model in GGUF: the engine's work at almost no cost, for tests and load.

The bytes are the same each time and on each machine: the weights come from a hash of their place, not from a random generator. It never ends by itself (its
special tokens are never likely), so that each call runs to its output cap; a token is one byte.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.demo.packages import require

if TYPE_CHECKING:
    import numpy
    from gguf import GGUFWriter
    from numpy.typing import NDArray

LAYERS: Final = 2
WIDTH: Final = 64
FEED_FORWARD: Final = 128
HEADS: Final = 4
CONTEXT_TOKENS: Final = 32_768
SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", *(f"<|reserved_{n}|>" for n in range(11)))
VOCABULARY: Final = 256 + len(SPECIALS)
SHA256: Final = "5ebe6df51037619a289245be74280568f9ac6e96ea1d4be31a8574e23d00f9e1"
"""Of the whole file, as the `gguf` package 0.19 writes it."""

CHAT_TEMPLATE: Final = """\
{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
{{- '# Tools\\n<tools>' }}{%- for tool in tools %}{{- '\\n' }}{{- tool | tojson }}{%- endfor %}{{- '\\n</tools>\\n' }}
{{- 'Call a tool as <tool_call>\\n{"name": NAME, "arguments": JSON}\\n</tool_call><|im_end|>\\n' }}
{%- elif messages and messages[0].role == 'system' %}{{- '<|im_start|>system\\n' + messages[0].content + '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{%- if message.role == 'tool' %}{{- '<|im_start|>user\\n<tool_response>\\n' + message.content + '\\n</tool_response><|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}{%- if message.content %}{{- message.content }}{%- endif %}
{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{%- if call.function.arguments is string %}{{- call.function.arguments }}{%- else %}{{- call.function.arguments | tojson }}{%- endif %}
{{- '}\\n</tool_call>' }}{%- endfor %}{{- '<|im_end|>\\n' }}
{%- elif not loop.first or message.role != 'system' %}{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"""


def make_tiny_model(path: Path, chat_template: str = CHAT_TEMPLATE) -> Path:
    """Writes the model to `path` (about half a megabyte); the folder must exist. Raises ConfigurationError where `gguf` is not installed."""
    require("gguf")
    from gguf import GGUFWriter

    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    writer = GGUFWriter(part, "llama")
    writer.add_name("tiny-random")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(VOCABULARY)
    writer.add_file_type(0)
    _vocabulary(writer, chat_template)
    for name, weights in _tensors().items():
        writer.add_tensor(name, weights)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    part.replace(path)
    return path


def tiny_model(folder: Path) -> Path:
    """The model in `folder`, made if it is not there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "tiny-random.gguf"
    return path if path.exists() else make_tiny_model(path)


def sha256_of(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _vocabulary(writer: GGUFWriter, chat_template: str) -> None:
    normal, control, user_defined = 1, 3, 4
    kinds = [user_defined if "tool_call" in special else control for special in SPECIALS]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*_byte_letters(), *SPECIALS])
    writer.add_token_types([normal] * 256 + kinds)
    writer.add_token_merges([f"{SPECIALS[-2]} {SPECIALS[-1]}"])  # the loader wants a merge; this one never applies
    writer.add_bos_token_id(256)
    writer.add_eos_token_id(258)
    writer.add_pad_token_id(256)
    writer.add_add_bos_token(False)
    writer.add_chat_template(chat_template)


def _byte_letters() -> list[str]:
    """The letter that GPT-2 vocabularies write for each byte: itself where it prints, else one from U+0100 on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]


def _tensors() -> dict[str, NDArray[numpy.float32]]:
    ones = _constant(WIDTH)
    tensors = {"token_embd.weight": _weights("token_embd", VOCABULARY, WIDTH, 1.0), "output_norm.weight": ones, "output.weight": _output()}
    for layer in range(LAYERS):
        block = f"blk.{layer}"
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            tensors[f"{block}.{part}.weight"] = _weights(f"{block}.{part}", WIDTH, WIDTH, 0.2)
        for part in ("ffn_gate", "ffn_up"):
            tensors[f"{block}.{part}.weight"] = _weights(f"{block}.{part}", FEED_FORWARD, WIDTH, 0.2)
        tensors[f"{block}.ffn_down.weight"] = _weights(f"{block}.ffn_down", WIDTH, FEED_FORWARD, 0.2)
        tensors[f"{block}.attn_norm.weight"] = tensors[f"{block}.ffn_norm.weight"] = ones
    return tensors


def _output() -> NDArray[numpy.float32]:
    """A special token and a control character score 0, never among the likely ones: a call ends at its cap, and its text may be shown on a terminal."""
    weights = _weights("output", VOCABULARY, WIDTH, 0.5)
    for unlikely in (slice(0, 0x20), slice(0x7F, 0x80), slice(256, VOCABULARY)):
        weights[unlikely] = 0.0
    return weights


def _weights(name: str, rows: int, columns: int, spread: float) -> NDArray[numpy.float32]:
    """Evenly spread between -spread and +spread, from the SHAKE-256 of the tensor's name: the same on each machine."""
    import numpy

    raw = hashlib.shake_256(name.encode()).digest(rows * columns * 2)
    steps = numpy.frombuffer(raw, dtype="<u2").astype(numpy.float32)
    return ((steps - numpy.float32(32767.5)) * numpy.float32(spread / 32768)).reshape(rows, columns)


def _constant(length: int) -> NDArray[numpy.float32]:
    import numpy

    return numpy.ones(length, dtype=numpy.float32)
