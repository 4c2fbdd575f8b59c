"""What ships beside the gateway to try it: a small real engine, a tiny random model, a set-up without configuration, and a story.

Rule: an engine that is started here is stopped here, by its process id. The heavy packages are imported only by the engine's own process.

* engine.py: llama.cpp's own server in a process of its own
* engine_process.py: that process
* engine_reading.py: what can be read off a llama.cpp server from outside
* packages.py: whether the optional packages are there
* tiny_model.py: a tiny random model, the same bytes each time
* embedded.py: gateway.toml, policy and ledger for one engine, made in a folder
* story.py: `gateway demo`
"""
