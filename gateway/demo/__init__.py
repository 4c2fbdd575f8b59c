"""A small real engine on this machine, and the story told on it. Nothing here is on a call's way; its packages are optional and imported only when used.

* `packages`: what the engine needs, found without importing it; where SmolLM2 lies.
* `tiny_model`: a tiny random model, the same bytes each time.
* `engine`: `RealEngine`, llama.cpp's own server in a process of its own.
* `engine_process`: that process.
* `engine_reading`: health, counters and slots of a llama.cpp server, read from outside.
"""
