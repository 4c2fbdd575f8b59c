"""The control plane: what drivers and the command line speak. HTTP and JSON over a Unix socket that its owner alone can open.

The rule: never on the agents' listener. Whoever can open the socket may do everything; nobody else anything. The metrics listener only tells.

    api.py       the application: every route
    campaigns.py handlers of campaigns
    runs.py      handlers of runs and keys
    budgets.py   handlers of budgets, preflights, explanations and the policies that campaigns can open with
    corrections.py  correcting what a call used
    notes.py     what is put on record of a reconciliation
    shelf.py     every policy file of the folder, checked
    reading.py   handlers of what only tells: usage, receipts, status, metrics, health
    bodies.py    what a request may say
    views.py     what stands, as JSON
    problems.py  every error as code, problem, cause and mend
    listening.py the Unix socket and the metrics listener
    services.py  what a handler can reach
"""
