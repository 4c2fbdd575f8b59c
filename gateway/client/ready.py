"""Whether the gateway can admit a call now, for a container's health check: `python -m gateway.client.ready`, which exits 0 or 1.

Asks /readyz on the control socket that GATEWAY_SOCKET names.
"""

from __future__ import annotations

import os
import sys

from gateway.client.control import ControlClient, ControlError

ANSWER_S = 4.0


def main() -> int:
    try:
        answer = ControlClient(os.environ.get("GATEWAY_SOCKET", "gateway.sock"), answer_s=ANSWER_S).ready()
    except ControlError as error:
        print(error)
        return 1
    if answer.get("ready"):
        return 0
    print("not ready:", "; ".join(map(str, answer.get("reasons", []))))
    return 1


if __name__ == "__main__":
    sys.exit(main())
