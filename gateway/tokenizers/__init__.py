"""How long a prompt is, before it is sent.

Rule: a bound comes at once and is never below the engine's own figure; a count is asked for at most once a call, never on the event loop, and says whether
it is the engine's own (`exact`) or an estimate. Nothing here opens a socket: who asks an engine is handed a `post`.

* tokenizer.py: the protocols (`Tokenizer`, `Counter`), what a helper request is, and why a count may not be had
* shape.py: the sizes of a request that a bound needs
* byte_bound.py: the bound, from those sizes and a model's overhead
* overhead.py: that overhead, measured by letting the engine render small conversations
* vocabulary.py: the vocabularies shipped in the package, checked when they are read
* bpe.py: counting with one of them
* asking.py: one such request, and what its answer says of the prompt or of the engine
* engine.py: llama.cpp's own template and tokenizer, asked over its helper paths
* tokenize_api.py: vLLM's and SGLang's, asked over `/tokenize`
* rendered_cache.py: what was counted before of a conversation that grows
* counters.py: the three counters: the engine's, a local vocabulary's, bytes alone
* several.py: one for a model that several upstreams serve
* choosing.py: a policy's word for its counter -> the counter
"""
