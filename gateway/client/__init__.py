"""A client of the control plane, for the command line and for drivers in Python.

The rule: it imports nothing of the gateway's, only the standard library, so that a driver may copy the file.

    control.py  ControlClient: one method a route
"""
