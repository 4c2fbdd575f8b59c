"""One file an agent; `READERS` in the order they are tried."""
