-- Tool calls count against limits: what a call is charged of them stands beside its other charges. Calls closed before were charged none.

ALTER TABLE call_records ADD COLUMN charged_tool_calls INTEGER;
UPDATE call_records SET charged_tool_calls = 0 WHERE status <> 'reserved';

DROP VIEW calls;
CREATE VIEW calls AS
SELECT call_id, campaign, run, lane, label, model, upstream, dialect, stream, strftime('%Y-%m-%dT%H:%M:%fZ', admitted_ms / 1000.0, 'unixepoch') AS admitted,
    strftime('%Y-%m-%dT%H:%M:%fZ', ended_ms / 1000.0, 'unixepoch') AS ended, status, outcome, source, input_tokens, output_tokens, cached_tokens,
    cache_write_tokens, reasoning_tokens, tool_calls, charged_requests, charged_input_tokens, charged_output_tokens, charged_tool_calls, counted_by, flags,
    ceiling, ceiling_from, waited_ms, key_id, admitted_ms, ended_ms, reserved_input_tokens, reserved_output_tokens, reserve_number, closing_number
FROM call_records;
