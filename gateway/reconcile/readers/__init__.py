"""The agents whose own records can be read, one file each; none knows another.

A reader turns a file into rows of one normal form (`record.py`) and says of each what kind it is. Adding one is a file here, a line in `READERS`, and
samples under tests/fixtures/dispatch.

- `claude.py`: Claude Code's session files
- `codex.py`: Codex's rollout files
- `opencode.py`: OpenCode's database and its export
- `qwen.py`: Qwen Code's chats and monthly usage
- `gemini.py`: Gemini CLI's sessions
- `copilot.py`: Copilot CLI's session events
- `pi.py`: pi's sessions
- `mini_swe_agent.py`: mini-swe-agent's trajectories
- `inspect_ai.py`: Inspect AI's logs
- `aider.py`: aider's analytics log
- `dispatch_lines.py`: our own form, for any driver
"""

from __future__ import annotations

from gateway.reconcile.readers.aider import AiderReader
from gateway.reconcile.readers.claude import ClaudeReader
from gateway.reconcile.readers.codex import CodexReader
from gateway.reconcile.readers.copilot import CopilotReader
from gateway.reconcile.readers.dispatch_lines import DispatchLinesReader
from gateway.reconcile.readers.gemini import GeminiReader
from gateway.reconcile.readers.inspect_ai import InspectReader
from gateway.reconcile.readers.mini_swe_agent import MiniSweAgentReader
from gateway.reconcile.readers.opencode import OpenCodeReader
from gateway.reconcile.readers.pi import PiReader
from gateway.reconcile.readers.qwen import QwenReader
from gateway.reconcile.record import AgentReader

READERS: tuple[AgentReader, ...] = (
    DispatchLinesReader(),
    QwenReader(),
    ClaudeReader(),
    CodexReader(),
    CopilotReader(),
    PiReader(),
    GeminiReader(),
    MiniSweAgentReader(),
    InspectReader(),
    OpenCodeReader(),
    AiderReader(),
)
"""In the order in which a file is shown to them: the first that claims it has it."""
