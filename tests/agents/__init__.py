"""Real coding agents behind the gateway: `make agents`. Never part of `make test`: it needs root, npm and PyPI, and minutes.

* `installing`: the agents by their pins (`pins/`), in a cache folder of their own.
* `namespaces`: an agent's network, whose only neighbour is the gateway.
* `setups`: each agent's settings, and how its own record reads.
* `scenarios`: what happens to it.
* `recorder`: what went over the wire.
* `trial`: one agent in one scenario.
* `midst`: what was delivered of a call that was cut.
* `keeping`, `shortening`: a trial as a fixture.
* `table`: what docs/agents.md says.
"""
