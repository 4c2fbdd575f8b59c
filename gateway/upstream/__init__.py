"""The way to the engines.

Rule: a call waits in one place and holds nothing there, it is sent once, byte for byte, and what fails is told by evidence, never by a guess.

* call.py: what gate and forward handle: the ticket of a waiting call, its admission, a refusal
* gate.py, waiter.py, flows.py, turns.py, places.py: the one waiting place: slots, turns and limits taken in one step
* forward.py: `Upstream`: a call out, its answer back; helper requests
* answer.py: an answer while it comes in, with a time-out for each phase
* pool.py: the connections to one engine
* health.py: whether an engine can be used
* identity.py: which models it serves, and its fingerprint
"""
