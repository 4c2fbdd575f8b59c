"""The agents whose own records can be read, one file each; none knows another.

A reader turns a file into rows of one normal form (`record.py`) and says of each what kind it is. Adding one is a file here, a line in `READERS`, and
samples under tests/fixtures/dispatch.

- `claude.py`: Claude Code's session files
- `codex.py`: Codex's rollout files
"""

from __future__ import annotations

from gateway.reconcile.readers.claude import ClaudeReader
from gateway.reconcile.readers.codex import CodexReader
from gateway.reconcile.record import AgentReader

READERS: tuple[AgentReader, ...] = (ClaudeReader(), CodexReader())
"""In the order in which a file is shown to them: the first that claims it has it."""
