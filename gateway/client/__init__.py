"""A client of the control plane, for the command line and for drivers in Python.

The rule: it imports nothing of the gateway's other rooms, only the standard library, so that a driver may copy the folder.

* control.py: `ControlClient`, one method a route
* driver.py: `Driver` and `AsyncDriver`: a run from its opening to its receipt
"""

from __future__ import annotations

from gateway.client.control import ControlClient, ControlError
from gateway.client.driver import AsyncDriver, Closed, Driver, PreflightFailed, Results

__all__ = ["AsyncDriver", "Closed", "ControlClient", "ControlError", "Driver", "PreflightFailed", "Results"]
