"""Usage, limits, reservations, the books: everything that decides about a number.

The rule: pure. No I/O, no clock, no random; times and ids are arguments. Whole numbers only; an unknown number is None, never 0; usage and charge are never
added to each other.

* usage.py      what a call used, where the number came from, how the call ended
* quantity.py   what can be limited, and the one arithmetic for all of it
* limit.py      accounts, balances, limits
* wanting.py    what a call wants of its limits
* decision.py   the decision table: sent, clamped, counted, refused, or waits
* balances.py   what stands on each account, in memory
* settling.py   from a reading to what a call is charged
* commands.py   everything that can be asked of the books, as data
* contents.py   what a command says in the ledger
* entries.py    what the books write
* chain.py      the form in which an entry is hashed, and the hash
* books.py      the state machine of calls: what may be written after what
* records.py    the same for campaigns, runs, keys, results, receipts
* journal.py    appending to a chain
* standing.py   what stands, and what the books ask of the past
* replay.py     what stands, made again from entries
* tally.py      sums over a chain
* receipt.py    receipts and conflicts
* call_row.py   one call as a row
"""
