-- The durable book. `journal` is the truth: each entry is canonical JSON, tied by its hash to the one before it in its chain.
-- `accounts` and `call_records` follow from it and are written in the same transaction; `gateway ledger verify` makes them again.

CREATE TABLE chains (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE journal (
    number INTEGER PRIMARY KEY,      -- rises by one over the whole ledger, from 1
    chain_id INTEGER NOT NULL REFERENCES chains (id),
    sequence INTEGER NOT NULL,       -- rises by one within its chain, from 1
    kind TEXT NOT NULL,
    at_ms INTEGER NOT NULL,
    call_id TEXT NOT NULL,           -- empty where the entry is about no call
    body TEXT NOT NULL,              -- canonical JSON (RFC 8785)
    previous_hash BLOB NOT NULL,
    hash BLOB NOT NULL               -- SHA-256 (previous_hash || body)
) STRICT;
CREATE UNIQUE INDEX journal_by_chain ON journal (chain_id, sequence);
CREATE INDEX journal_records ON journal (number) WHERE call_id = '';
CREATE INDEX journal_refusals ON journal (number) WHERE kind IN ('refuse', 'refusal_summary');

CREATE TABLE accounts (
    account TEXT PRIMARY KEY,        -- scope|subject|lane|model|quantity|window
    reserved INTEGER NOT NULL,
    settled INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE call_records (
    call_id TEXT PRIMARY KEY,
    campaign TEXT NOT NULL,
    run TEXT NOT NULL,
    lane TEXT NOT NULL,
    label TEXT NOT NULL,
    key_id TEXT NOT NULL,
    model TEXT NOT NULL,
    upstream TEXT NOT NULL,
    dialect TEXT NOT NULL,
    stream INTEGER NOT NULL,
    admitted_ms INTEGER NOT NULL,
    waited_ms INTEGER NOT NULL,
    ceiling INTEGER NOT NULL,        -- output tokens, as sent
    ceiling_from TEXT NOT NULL,
    reserved_input_tokens INTEGER NOT NULL,
    reserved_output_tokens INTEGER NOT NULL,
    reserve_number INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'reserved',
    ended_ms INTEGER,
    outcome TEXT,
    source TEXT,
    input_tokens INTEGER,            -- usage; NULL is unknown, never 0
    output_tokens INTEGER,
    cached_tokens INTEGER,
    cache_write_tokens INTEGER,
    reasoning_tokens INTEGER,
    tool_calls INTEGER,
    charged_requests INTEGER,        -- charge: what counts against the limits; never to be added to usage
    charged_input_tokens INTEGER,
    charged_output_tokens INTEGER,
    counted_by TEXT,
    flags TEXT,
    closing_number INTEGER           -- the entry that stands for how the call ended
) STRICT, WITHOUT ROWID;
CREATE INDEX call_records_open ON call_records (call_id) WHERE status = 'reserved';

-- Views to read in any SQLite tool.

CREATE VIEW entries AS
SELECT number, name AS chain, sequence, kind, at_ms, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch') AS at, call_id, body,
    lower(hex(previous_hash)) AS previous_hash, lower(hex(hash)) AS hash
FROM journal JOIN chains ON chains.id = chain_id;

CREATE VIEW postings AS
SELECT number, json_extract(posting.value, '$[0]') AS account, json_extract(posting.value, '$[1]') AS reserved, json_extract(posting.value, '$[2]') AS settled
FROM journal, json_each(journal.body, '$.postings') AS posting;

CREATE VIEW balances AS SELECT account, reserved, settled FROM accounts;

CREATE VIEW calls AS
SELECT call_id, campaign, run, lane, label, model, upstream, dialect, stream, strftime('%Y-%m-%dT%H:%M:%fZ', admitted_ms / 1000.0, 'unixepoch') AS admitted,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended_ms / 1000.0, 'unixepoch') AS ended, status, outcome, source, input_tokens, output_tokens, cached_tokens,
    cache_write_tokens, reasoning_tokens, tool_calls, charged_requests, charged_input_tokens, charged_output_tokens, counted_by, flags, ceiling, ceiling_from,
    waited_ms, key_id, admitted_ms, ended_ms, reserved_input_tokens, reserved_output_tokens, reserve_number, closing_number
FROM call_records;

CREATE VIEW usage_by_run AS
SELECT campaign, run, label, count(*) AS calls, sum(status = 'reserved') AS open_calls,
    sum(input_tokens) AS input_tokens, sum(status <> 'reserved' AND input_tokens IS NULL) AS input_unknown,
    sum(output_tokens) AS output_tokens, sum(status <> 'reserved' AND output_tokens IS NULL) AS output_unknown,
    sum(charged_requests) AS charged_requests, sum(charged_input_tokens) AS charged_input_tokens, sum(charged_output_tokens) AS charged_output_tokens
FROM call_records WHERE status <> 'voided' GROUP BY campaign, run, label;

CREATE VIEW usage_by_campaign AS
SELECT campaign, label, count(*) AS calls, sum(status = 'reserved') AS open_calls,
    sum(input_tokens) AS input_tokens, sum(status <> 'reserved' AND input_tokens IS NULL) AS input_unknown,
    sum(output_tokens) AS output_tokens, sum(status <> 'reserved' AND output_tokens IS NULL) AS output_unknown,
    sum(charged_requests) AS charged_requests, sum(charged_input_tokens) AS charged_input_tokens, sum(charged_output_tokens) AS charged_output_tokens
FROM call_records WHERE status <> 'voided' GROUP BY campaign, label;

CREATE VIEW campaigns AS
SELECT json_extract(body, '$.campaign') AS campaign, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch') AS opened,
    json_extract(body, '$.policy_name') AS policy_name, json_extract(body, '$.policy_hash') AS policy_hash,
    json_extract(body, '$.planned_runs') AS planned_runs, json_extract(body, '$.policy') AS policy, number
FROM journal WHERE call_id = '' AND kind = 'open_campaign';

CREATE VIEW runs AS
SELECT json_extract(body, '$.campaign') AS campaign, json_extract(body, '$.run') AS run, json_extract(body, '$.label') AS label,
    json_extract(body, '$.task') AS task, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch') AS opened,
    json_extract(body, '$.limits_hash') AS limits_hash, number,
    (SELECT count(*) FROM journal AS closing WHERE closing.call_id = '' AND closing.kind = 'begin_closing'
        AND json_extract(closing.body, '$.campaign') = json_extract(journal.body, '$.campaign')
        AND json_extract(closing.body, '$.run') = json_extract(journal.body, '$.run')) AS closing
FROM journal WHERE call_id = '' AND kind = 'open_run';

CREATE VIEW refusals AS
SELECT number, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch') AS at, json_extract(body, '$.campaign') AS campaign,
    json_extract(body, '$.run') AS run, json_extract(body, '$.lane') AS lane, json_extract(body, '$.model') AS model,
    json_extract(body, '$.code') AS code, json_extract(body, '$.final') AS final, json_extract(body, '$.limit.name') AS limit_name,
    json_extract(body, '$.limit.ceiling') AS ceiling, json_extract(body, '$.limit.settled') AS settled, json_extract(body, '$.limit.reserved') AS reserved,
    json_extract(body, '$.limit.asked') AS asked, coalesce(json_extract(body, '$.count'), 1) AS refused, call_id
FROM journal WHERE kind IN ('refuse', 'refusal_summary');

CREATE VIEW receipts AS
SELECT number, strftime('%Y-%m-%dT%H:%M:%fZ', at_ms / 1000.0, 'unixepoch') AS at, json_extract(body, '$.campaign') AS campaign,
    json_extract(body, '$.run') AS run, json_extract(body, '$.receipt') AS receipt, lower(hex(hash)) AS hash, body
FROM journal WHERE call_id = '' AND kind = 'receipt';
