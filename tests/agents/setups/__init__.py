"""The agents, one file each: settings as a user would write them, and how each one's own record reads.

* `setup`: what all of them give.
* `aider`, `claude`, `codex`, `copilot`, `inspect`, `mini`, `opencode`, `pi`, `qwen`: one agent each.
"""

from __future__ import annotations

from tests.agents.setups import aider, claude, codex, copilot, inspect, mini, opencode, pi, qwen
from tests.agents.setups.setup import Setup as Setup

SETUPS: tuple[Setup, ...] = tuple(setup for agent in (claude, codex, opencode, qwen, mini, inspect, aider, pi, copilot) for setup in agent.SETUPS)
