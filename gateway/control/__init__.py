"""The control plane: what drivers, the command line and the status page speak. HTTP and JSON over a Unix socket that its owner alone can open,
or over TCP with a token.

The rule: never on the agents' listener. Whoever can open the socket or has the token may do everything; nobody else anything. The metrics listener only tells.

    api.py       the applications
    operations.py every request in one table
    openapi.py   the same as an OpenAPI document
    campaigns.py handlers of campaigns
    runs.py      handlers of runs and keys
    upstreams.py handlers of the engines
    budgets.py   handlers of budgets, preflights, explanations and the policies that campaigns can open with
    corrections.py  correcting what a call used
    notes.py     what is put on record of a reconciliation
    shelf.py     every policy file of the folder, checked
    reading.py   handlers of what only tells: usage, receipts, status, metrics, health
    overview.py  what a person sees at a glance
    live.py      the same as a stream, for whoever looks
    history.py   handler of what a run's page draws
    pages.py     the status page's files
    bodies.py    what a request may say
    views.py     what stands, as JSON
    problems.py  every error as code, problem, cause and mend
    surfaces.py  every place where it is heard, by the settings
    listening.py the Unix socket, and listeners on TCP
    token.py     the token over TCP
    services.py  what a handler can reach
"""
