"""Real reverse proxies in front of a real gateway: the same calls, the same boundaries of messages. `make peers` runs these: they need nginx and HAProxy.

* peer.py: nginx and HAProxy as processes, with the settings of docs/operating.md
* test_calls_through_peers.py: calls, streams event by event, and agents that leave
* test_same_boundaries.py: what is framed as nobody should, and what each side took it for
"""
