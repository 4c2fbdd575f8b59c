"""The command line. It speaks to the running gateway over its control socket; what only reads also opens a ledger file by itself.

The rule: every command takes `--json` and writes one document; every failure is three lines (problem, cause, mend) and a documented exit code;
nothing waits without an end.

    root          the command `gateway` and the one place where a failure becomes an exit code
    serve         `gateway serve`
    up            `gateway up`
    demo          `gateway demo`
    doctor        `gateway doctor`
    selftest      `gateway selftest`
    upstream      `gateway upstream probe`
    upstreams     `gateway upstream list|drain|resume`
    upstream_table what a probe found, as TOML
    policy        `gateway policy check|show|reload`
    campaign      `gateway campaign open|halt|resume|close|list|show`
    run           `gateway run open|close|list|show`
    budget        `gateway run budget`
    preflight     `gateway preflight`
    explain       `gateway explain`
    correct       `gateway correct`
    exec          `gateway exec`
    key           `gateway key issue|revoke|list`
    page          `gateway page`: the status page in a browser
    usage         `gateway usage`
    receipt       `gateway receipt`
    reconcile     `gateway reconcile`
    reconcile_views a reconciliation for people
    report        `gateway report`, `gateway compare`
    export        `gateway export`
    capture       `gateway capture show|export|prune`
    ledger        `gateway ledger verify|backup|clock`
    mock_engine   `gateway mock-engine`
    version       `gateway version`
    exits         exit codes and what they mean
    problems      every error as problem, cause, mend and exit code
    reaching      the control socket: where it is, how long an answer may take
    configured    which gateway.toml is read
    reading       a ledger file opened by itself, read-only, and which one
    progress      how far long work is, on stderr
    plan_file     a plan as CSV, and pins
    naming        which run a person means
    pasting       what an agent needs, ready to paste
    hooks         side rooms, loaded when their command is called
    screen        tables on a terminal, plain text in a pipe, JSON
    words         one value, written
    limit_views   limits for people
    receipt_views receipts for people
    report_views  a campaign's report for people
    compare_views campaigns side by side, for people
    usage_views   usage for people
"""

from __future__ import annotations

import io
import sys


def main() -> None:
    """The entry point `gateway`."""
    from gateway.cli.root import root

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that can't show a letter gets its number, as on stderr
    root()
