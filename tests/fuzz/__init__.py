"""Bodies and answers by the million, made wrong in every way that a machine thinks of: `make fuzz`. Never part of `make test`.

* mutating.py: what is made of a good input: bytes, JSON values and the ways to write them; all from one seed
* bodies.py: one request body through everything that reads, strips, refuses, forwards and records it, held to what may be forwarded
* answers.py: one engine's answer through a meter, in pieces, held to what a reading must be
* run.py: runs them, on all processors, and prints the seed
* guided.py: the same two with atheris, which looks for inputs that reach new code
"""
