"""A call's way through the gateway. Start with exchange.py: the whole walk, wire in to settled, in one short function.

Rule: nothing goes to an engine before it is reserved, durably; no terminal event goes to the agent before the call is settled, durably. What can't be admitted
is refused in one place; what an engine does wrong is how a call ended, never an exception of the gateway.

* exchange.py: the walk, and the one handler of the data listener
* listening.py: the data listener; agent_connection.py: what one of its connections may hold and how long
* identify.py: who calls: the key alone
* routing.py: method and path, after one strict normalisation
* body.py: the body, read and parsed once, under limits
* may_call.py: whether a key may have calls at this moment
* agent_headers.py: headers that would steer an engine, refused
* call_log.py: one line of the log a call
* calls.py: from a request to a call that is checked
* serving.py: the upstreams that can serve it
* salt.py: the salt of an engine's prompt cache
* ticket.py: the ticket with which it waits
* body_details.py: what is written down of a body
* reserving.py: the reservation's command, and the body that is sent
* reservation.py: from admission to settlement; what closes always
* under_way.py: the state of one admitted call
* capturing.py: keeps bodies, where the policy says so
* relay.py: the answer on its way, and what is held back
* ceiling_watch.py: whether an engine obeys the ceiling that it was sent
* agent_side.py: the agent's side of an answer; raw_answer.py: its head and chunks as bytes
* keepalive.py: comments on a stream whose engine is silent for long
* utility.py: requests that do no model work
* counted_late.py: a prompt of which an answer did not tell how long it was
* settlement.py: the entry that closes a call; measured.py: what the metrics hear of it
* engine_told.py: what its end says of the engine
* fault_points.py: a test aid: where a call's way can be cut off as by kill -9
* delivered.py: our own count of what was delivered
* ending.py: what the agent gets once the call is settled
* telling.py: what an agent may ask of its limits: budget and preflight
* answer_headers.py: what an answer tells of limits
* refused.py: the one place that answers what was not admitted
* forms.py: in which format, by the path alone where no dialect is known
* refusing.py: the words of refusals, cuts and failures
* cleaning.py: an engine's error text without its internals
"""
