"""The ledger against what the agents themselves recorded: row by row what agrees, what differs and why. Read-only, never on the way of a call.

- `record.py`: what one row of an agent's own record says, in one normal form, whoever wrote it
- `json_lines.py`: JSON out of files that nobody vouches for, in bounded memory
- `archive.py`: members of a zip that nobody vouches for
- `sqlite_file.py`: an SQLite file that nobody vouches for, with its log
- `values.py`: looks into JSON of unknown shape
- `readers/`: one agent's record each
- `finding.py`: whose records lie under the given paths, and all their rows, each once
- `ledger_side.py`: calls and refusals of a run or campaign as they stood with some entry, and only what matching needs of them
- `known_ids.py`: all ids that the whole ledger has seen: where the wanted ones stand, and what ids look like here
- `id_forms.py`: what an id looks like, and whether it says enough to name one thing
- `classes.py`: what a row of the report can be, and whether that is explained, in one table
- `match.py`: one row of the report
- `matching.py`: who belongs to whom, step by step: `by_ids.py`, `by_usage.py` (with `rising.py`), `by_order.py`
- `fits.py`: what these ask of time, session and order
- `comparing.py`: what a call and its row come to
- `leftovers.py`: why a call has no row, and a row no call
- `witnesses.py`: the engine's own counters, held against the sums of ledger and records
- `reconciling.py`: one reconciliation from end to end, as one document
- `report_lines.py`: it as lines and sentences that every form of the report shows: `markdown.py`, and `page.py` with `timeline.py`
"""
