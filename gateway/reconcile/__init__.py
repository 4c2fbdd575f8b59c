"""The ledger against what the agents themselves recorded: row by row what agrees, what differs and why. Read-only, never on the way of a call.

- `record.py`: what one row of an agent's own record says, in one normal form, whoever wrote it
"""
