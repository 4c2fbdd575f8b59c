"""The OpenAI SDK, pointed at a gateway (or straight at an engine): no retries of its own, no proxy of the environment."""

from __future__ import annotations

import openai


def openai_client(address: str, key: str = "none", *, timeout_s: float = 60.0, max_retries: int = 0) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"{address}/v1", api_key=key, max_retries=max_retries, timeout=timeout_s, http_client=openai.DefaultHttpxClient(trust_env=False)
    )


def async_openai_client(address: str, key: str = "none", *, timeout_s: float = 60.0, max_retries: int = 0) -> openai.AsyncOpenAI:
    http_client = openai.DefaultAsyncHttpxClient(trust_env=False)
    return openai.AsyncOpenAI(base_url=f"{address}/v1", api_key=key, max_retries=max_retries, timeout=timeout_s, http_client=http_client)
