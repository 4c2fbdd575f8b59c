"""model-gateway: the metered way from sandboxed agents to a model server of your own.

A call walks through `proxy/exchange.py`; start reading there. The rooms and floors are listed in `docs/architecture.md`.
"""

__version__ = "0.1.0"
