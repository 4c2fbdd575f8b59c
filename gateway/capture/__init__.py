"""Bodies of calls, where a policy says `capture = true`: files by SHA-256 beside the ledger, compressed, bounded; never in the ledger, never in a pack.

The rule: a call never waits for its body to be kept, and never fails because it could not be. What was not kept is counted.

- `store.py`: the files: keep, read, remove
- `keeper.py`: keeps in the background while calls run
- `answers.py`: an answer as its agent got it, compressed as it goes by
- `selecting.py`: which bodies belong to which calls of a ledger
"""
