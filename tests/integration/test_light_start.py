"""What a gateway that serves has loaded: reports are the reading side's, and what they need weighs as much as two hundred open streams."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

STARTED = """
import asyncio, sys
from pathlib import Path
from gateway.app import Gateway
from gateway.settings import load_settings

async def main():
    gateway = Gateway(load_settings(Path(sys.argv[1])))
    await gateway.start()
    await gateway.stop(0)

asyncio.run(main())
print(*sorted({name.partition(".")[0] for name in sys.modules}))
"""


def test_no_report_is_loaded_before_one_is_asked_for(tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "gateway.toml").write_text(
        f'policies = "{tmp_path}/policies"\n[data]\nlisten = "127.0.0.1:0"\n[control]\nsocket = "{tmp_path}/control"\n'
        f'[ledger]\npath = "{tmp_path}/gateway.ledger"\n'
        '[upstreams.engine]\naddress = "http://127.0.0.1:9"\nengine = "generic"\nslots = 1\n[upstreams.engine.models]\nm = "m"\n'
    )
    done = subprocess.run([sys.executable, "-c", STARTED, str(tmp_path / "gateway.toml")], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    loaded = set(done.stdout.splitlines()[-1].split())
    assert {"aiohttp", "sqlite3"} <= loaded
    assert not {"sqlite_utils", "numpy", "pandas", "rich"} & loaded
