"""What is wrong with a set-up, line by line, each with its mend: looks at the real engines, the machine and the listeners.

The rule: it looks and changes nothing, takes no lock and spends from no budget (engines are asked directly), and every question has its time. Asking and
judging are apart: what was seen is a value, and the judging modules are pure.

* line.py            one finding: ok, warn or fail, and the mend
* seen.py            what was seen, as values
* examination.py     everything, in order: from gateway.toml to the lines
* engine.py          asks one engine: what it says of itself, one call of three tokens, one that is left
* trial.py           the calls, as the gateway would send them
* engine_lines.py    judges what an engine showed
* context_lines.py   judges its context size and the counters against each policy
* machine.py         looks at disk, files, clock, and at a gateway that runs
* machine_lines.py   judges those
* networks.py        judges where the listeners listen
"""

from __future__ import annotations

from gateway.doctor.examination import Examination, examine
from gateway.doctor.line import Line, Status

__all__ = ["Examination", "Line", "Status", "examine"]
