"""Campaigns, runs and keys while the gateway serves: who a key is, what may open, how it closes, who is in flight.

The rule: what is known here follows the ledger. It is read from there at start and changes when a commit is durable, so a restart changes nothing.

    runs.py       the front: all that others ask of this room
    campaigns.py  the state of campaigns and runs, and when it is in doubt
    keys.py       secret -> identity; issuing and revoking
    opening.py    opening campaigns and runs, once under any concurrency and again for a driver whose reply was lost
    stored_policy.py    the policy that a campaign's opening holds, read at start
    plan.py       the planned runs of a campaign, and what made a run what it is
    may_open.py   whether one more run may open
    room.py       whether campaign, day and gateway can carry one more run to its end
    deadlines.py  when a run, a lane or a campaign is over
    first_calls.py      when each lane of a run had its first call
    deadline_watch.py   cuts what runs past its deadline
    closing.py    halt, resume, close, results, receipts
    in_flight.py  every call in flight: cut by run, campaign or key, and waited for
    left.py       every limit of a run or campaign and what is left of it
    budget.py     all limits of a run as agents and drivers see them
    beliefs.py    a preflight: what is believed of limits, held against what holds
    telling.py    what an agent was told, so that it hears it once and no number rises
    utilities.py  its requests that do no model work
    growth.py     how much of a conversation is new since the last call
    declined.py   why a request was not carried out
    book.py       the little of the ledger that is used here
"""
