"""The durable book.

The rule: what `Ledger.post` has answered is on the disk, what it has not answered may or may not be, and nothing is ever changed or left out. The store
keeps, the books (`gateway.accounting.books`) decide; nothing in here knows a limit.

* ledger.py      posting, group commit, balances at hand, when nothing may be admitted
* gathering.py   how long commands wait for each other
* committer.py   the one thread that writes, and how it recovers from a failed commit
* store.py       what a store must do
* sqlite.py      the SQLite store; schema.py opens and migrates its file, written.py finds what was written, many.py writes many rows in one step
* connect.py     from an address to a store
* backup.py      a marked copy, and what must happen before one may serve
* lock.py        one process a ledger
* secret.py      a secret of the ledger's own, in a file beside it
* clock.py       the only clock of records
* disk.py        whether there is room left
* refusals.py    a flood of refusals, summed
* state.py       what stands of campaigns, runs and keys, for a start
* explaining.py  why a call went as it did, from its entries
* reading.py     calls, usage, receipts: read-only, beside a gateway that writes
* by_day.py     which calendar day a call belongs to, as day budgets count it
* verify.py      adds everything again and names the first entry that does not fit, with recount.py and anchors.py
"""
