"""A client of the control plane, for the command line and for drivers in Python.

The rule: it imports nothing of the gateway's other rooms, only the standard library, so that a driver may copy the folder.

* control.py: `ControlClient`, one method a route; addresses.py: from an address to a connection; unix_socket.py: HTTP over a Unix socket
* dispatch.py: `DispatchWriter`, a dispatch record for a driver of its own; gateway-dispatch-1.schema.json beside it says its form
* driver.py: `Driver` and `AsyncDriver`: a run from its opening to its receipt
* ready.py: whether the gateway is ready, as a command for a container's health check
* selftest.py: what can be reached from inside a sandbox; one file that runs by itself
"""

from __future__ import annotations

from gateway.client.control import ControlClient, ControlError
from gateway.client.dispatch import DispatchWriter, usage_of
from gateway.client.driver import AsyncDriver, Closed, Driver, PreflightFailed, Results

__all__ = ["AsyncDriver", "Closed", "ControlClient", "ControlError", "DispatchWriter", "Driver", "PreflightFailed", "Results", "usage_of"]
