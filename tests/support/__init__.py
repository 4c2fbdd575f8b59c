"""What integration and acceptance tests share: processes, sockets, clients, and the session's own accounts.

* `storeys`: the pytest plugin: a time budget a storey, skips by id, how many tests ran.
* `skips`: `skip("id", "reason")`.
* `waiting`: `eventually(...)`.
* `processes`: a child process with a ready line.
* `toml`: tables as TOML text.
* `gateway_process`: `gateway serve` on a folder of its own.
* `control`: the control plane over its Unix socket.
* `mock_process`: `gateway mock-engine` as a process.
* `raw_http`: a socket client that records each byte with its moment.
* `sse`: events of a stream, read strictly.
* `dispatch_samples`: the records of real agents, and what the server beside each saw.
* `cases`: the answers of many engines, as scripts of the mock engine.
* `load`: clients that call until the gateway is gone, and what each knows.
* `strace`, `order`: what a process did, and the ledger's order held against it; `hasty`: a gateway that breaks it, or itself.
* `exact`: two hundred callers at once, and the books afterwards.
* `final_ways`: how a run comes to its end for good.
* `sdk`: the OpenAI SDK, pointed at a gateway.
"""
