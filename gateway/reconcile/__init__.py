"""The ledger against what the agents themselves recorded: row by row what agrees, what differs and why. Read-only, never on the way of a call.

- `record.py`: what one row of an agent's own record says, in one normal form, whoever wrote it
- `json_lines.py`: JSON out of files that nobody vouches for, in bounded memory
- `archive.py`: members of a zip that nobody vouches for
- `sqlite_file.py`: an SQLite file that nobody vouches for, with its log
- `values.py`: looks into JSON of unknown shape
- `readers/`: one agent's record each
- `finding.py`: whose records lie under the given paths, and all their rows, each once
"""
