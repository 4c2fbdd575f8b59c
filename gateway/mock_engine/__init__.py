"""A scripted model server on a real socket: says what it is told, as fast, as slow and as badly as it is told, and logs what it saw to the nanosecond.

Ships as `gateway mock-engine`; tests, demo and benchmark share it. It knows nothing of the gateway: what it logs is evidence.

* `script`: what a call does, and the playbook of a server.
* `tokens`: its template and tokenizer, so that counting and reporting agree.
* `plan`: what one answer will say.
* `events`: a plan as chat JSON on the wire.
* `responses_events`: the same as OpenAI Responses.
* `messages_events`: the same as Anthropic Messages.
* `play`: one call, played onto its connection.
* `turns`: its slots.
* `wire`: HTTP/1.1, with each byte in our hands.
* `log`: what it saw.
* `facts`: what it answers about itself.
* `server`: `MockEngine`, in a loop.
* `threaded`: `MockEngineThread`, beside code without a loop.
* `serve`: the command.
"""

from gateway.mock_engine.log import CallRecord as CallRecord
from gateway.mock_engine.script import Die as Die
from gateway.mock_engine.script import Playbook as Playbook
from gateway.mock_engine.script import Script as Script
from gateway.mock_engine.script import ToolCall as ToolCall
from gateway.mock_engine.script import UsageForm as UsageForm
from gateway.mock_engine.serve import main as main
from gateway.mock_engine.serve import serve as serve
from gateway.mock_engine.server import MockEngine as MockEngine
from gateway.mock_engine.threaded import MockEngineThread as MockEngineThread
