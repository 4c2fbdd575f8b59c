"""These run by `make long` alone: acceptance tests that mostly wait, or go through every API; with them `make test` would pass its ten minutes."""

from __future__ import annotations

import os

collect_ignore_glob = [] if os.environ.get("GATEWAY_LONG") else ["test_*.py"]
