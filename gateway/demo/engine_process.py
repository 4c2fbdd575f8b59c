"""The process in which the small real engine runs: llama.cpp's own server, one model, one address line on standard output.

It ends when its standard input ends, so that it never outlives the one who started it; SIGTERM ends it at once, for it holds nothing worth keeping.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Final


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m gateway.demo.engine_process", description="llama.cpp's server on 127.0.0.1")
    parser.add_argument("--model", required=True, help="the .gguf file")
    parser.add_argument("--alias", required=True, help="the model's name")
    parser.add_argument("--context-tokens", type=int, default=4096, help="of each slot")
    parser.add_argument("--slots", type=int, default=2, help="calls that run side by side")
    parser.add_argument("--pooling", type=int, default=-1, help="makes embeddings, pooled in this way, and generates nothing")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--verbosity", type=int, default=2, help="1 errors, 2 warnings, 3 each call")
    options = parser.parse_args(arguments)
    address = _serve(options)
    sys.stdout.write(json.dumps({"address": address}) + "\n")
    sys.stdout.flush()
    sys.stdin.buffer.read()
    os._exit(0)  # the server's own end waits for calls that run


def _serve(options: argparse.Namespace) -> str:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.model_alias = {options.alias}
    params.n_ctx = options.context_tokens * options.slots
    params.n_parallel = options.slots
    params.cpuparams.n_threads = options.threads
    params.cpuparams_batch.n_threads = options.threads
    params.n_threads_http = max(8, 4 * options.slots)  # each stream holds one thread
    params.hostnames = ["127.0.0.1"]
    params.port = options.port
    if options.pooling >= 0:
        params.embedding, params.pooling_type = True, options.pooling
    params.endpoint_metrics = params.endpoint_slots = params.endpoint_props = True
    params.use_jinja = True
    params.offline = True
    params.verbosity = options.verbosity
    server = xllamacpp.Server(params)
    _SERVING.append(server)
    return str(server.listening_address)


_SERVING: Final[list[object]] = []
"""A server serves for as long as something holds it."""

if __name__ == "__main__":
    main()
