"""A campaign packed so that a stranger can check it without this software.

Everything in a pack follows from the chains that are in it; `check.py`, which lies in each pack, makes it all again by itself and is kept apart from the
rest of this room, so that one mistake can't stand on both sides. The same ledger as of the same entry gives the same bytes.

- `packing.py`: the whole walk: campaign chain, run by run, sums, receipts, heads
- `folder.py`: the files of a pack as they are written, and their sums
- `tables.py`: rows as CSV
- `readme.py`: what the pack says of itself
- `check.py`: the check that goes along; Python 3.10 and nothing else
- `check_rows.py`: its arithmetic: calls, runs and sums made again
"""
