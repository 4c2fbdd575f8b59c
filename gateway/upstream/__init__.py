"""The way to the engines.

Rule: a call waits in one place and holds nothing there, it is sent once, byte for byte, and what fails is told by evidence, never by a guess.

* call.py: what gate and forward handle: the ticket of a waiting call, its admission, a refusal
* gate.py: the one waiting place: slots, turns and limits taken in one step
* turns.py: its logic, without I/O; effects.py what a turn leads to; queue.py who waits; flows.py whose turn it is; waiter.py one call that waits
* homes.py: which engine of several a call goes to, and where its run has its prompt
* places.py, slots.py, alarms.py, counting.py: accounts and room set aside, slots, the moments that change a wait, whose prompt is counted
* engines.py: all engines of a gateway, their health, identity and counters
* forward.py: `Upstream`: a call out, its answer back; helper requests; helper_answer.py: what comes back of these
* answer.py: an answer while it comes in, its pieces taken where they arrive; watch.py: a time-out for each phase
* connection.py: one connection to an engine; pool.py: those that are open, and how one is opened
* cancelling.py: whether an engine stopped working on a call that was left; at_work.py: what it says it works on
* event_sizes.py: which engines send each token by itself, and how many bytes that is
* health.py: what an engine's health path says; circuit.py: whether the engine gets calls
* identity.py: which models it serves, and its fingerprint
* probe.py: what stands at an address that nobody declared yet; marks.py: by what servers are told apart
"""
