-- A call ends when it ends: `ended` and `ended_ms` of a corrected call are its last entry that is no correction. In `call_records` stands the moment of
-- the entry that closed it last, a correction too. Corrections are followed back by the number each of them names.

DROP VIEW calls;
CREATE VIEW calls AS
SELECT call_id, campaign, run, lane, label, model, upstream, dialect, stream, strftime('%Y-%m-%dT%H:%M:%fZ', admitted_ms / 1000.0, 'unixepoch') AS admitted,
    strftime('%Y-%m-%dT%H:%M:%fZ', end_ms / 1000.0, 'unixepoch') AS ended, status, outcome, source, input_tokens, output_tokens, cached_tokens,
    cache_write_tokens, reasoning_tokens, tool_calls, charged_requests, charged_input_tokens, charged_output_tokens, charged_tool_calls, counted_by, flags,
    ceiling, ceiling_from, waited_ms, key_id, admitted_ms, end_ms AS ended_ms, reserved_input_tokens, reserved_output_tokens, reserve_number, closing_number
FROM (
    SELECT *, CASE status WHEN 'adjusted' THEN (
        WITH RECURSIVE back (kind, at_ms, corrects) AS (
            SELECT kind, at_ms, json_extract(body, '$.corrects') FROM journal WHERE number = closing_number
            UNION ALL
            SELECT journal.kind, journal.at_ms, json_extract(journal.body, '$.corrects') FROM journal JOIN back ON number = corrects WHERE back.kind = 'adjust'
        )
        SELECT at_ms FROM back WHERE kind <> 'adjust'
    ) ELSE ended_ms END AS end_ms FROM call_records
);
