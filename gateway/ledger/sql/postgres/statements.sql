-- What the PostgreSQL store writes. `-- name: what it is for` begins a statement; `:name` is a value.
-- Upserts leave alone what never changes, so that its indexes aren't touched.

-- lock: keep these streams to this transaction; keys in ascending order, so that no two transactions wait for each other
SELECT pg_advisory_xact_lock(key) FROM unnest(:keys::bigint[]) AS key

-- past: what stands after the seqs at hand, a page of each stream at most
SELECT found.* FROM unnest(:streams::text[], :seqs::bigint[]) AS known (stream, seq)
CROSS JOIN LATERAL (
    SELECT * FROM events WHERE events.stream = known.stream AND events.seq > known.seq ORDER BY events.seq LIMIT :page
) AS found

-- write: all that one commit brings, in one round trip
WITH
add_events AS (INSERT INTO events SELECT * FROM unnest(:events::events[])),
add_payloads AS (INSERT INTO payloads SELECT * FROM unnest(:payloads::payloads[]) ON CONFLICT DO NOTHING),
add_policies AS (INSERT INTO policies SELECT * FROM unnest(:policies::policies[]) ON CONFLICT DO NOTHING),
put_checkpoints AS (
    INSERT INTO checkpoints SELECT * FROM unnest(:checkpoints::checkpoints[])
    ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, fold_version = excluded.fold_version, state = excluded.state
),
put_runs AS (
    INSERT INTO runs SELECT * FROM unnest(:runs::runs[])
    ON CONFLICT (stream, run) DO UPDATE SET
        state = excluded.state, status = excluded.status, reason = excluded.reason, turns = excluded.turns, closed_at = excluded.closed_at,
        due_at = excluded.due_at
),
put_calls AS (
    INSERT INTO calls SELECT * FROM unnest(:calls::calls[])
    ON CONFLICT (stream, call) DO UPDATE SET
        turn = excluded.turn, upstream = excluded.upstream, effect = excluded.effect, state = excluded.state, reason = excluded.reason,
        key = excluded.key, occurrence = excluded.occurrence, attempt = excluded.attempt, hold = excluded.hold, result = excluded.result,
        status = excluded.status, usd_micros = excluded.usd_micros, admitted_at = excluded.admitted_at, settled_at = excluded.settled_at
),
put_holds AS (
    INSERT INTO holds SELECT * FROM unnest(:holds::holds[])
    ON CONFLICT (stream, hold) DO UPDATE SET
        state = excluded.state, reason = excluded.reason, expires_at = excluded.expires_at, execute_by = excluded.execute_by,
        ended_by = excluded.ended_by
),
put_votes AS (
    INSERT INTO votes SELECT * FROM unnest(:votes::votes[])
    ON CONFLICT (stream, id) DO UPDATE SET vote = excluded.vote, note = excluded.note
),
put_tools AS (
    INSERT INTO tools SELECT * FROM unnest(:tools::tools[])
    ON CONFLICT (stream, tool) DO UPDATE SET digest = excluded.digest
)
SELECT

-- add_probe: about as much as a batch writes
INSERT INTO probes VALUES (:bytes)

-- keep_out: no other process writes to the views until this transaction ends
LOCK TABLE runs, calls, holds, votes, tools IN SHARE ROW EXCLUSIVE MODE

-- tell: which streams have news, for the other processes that listen
SELECT pg_notify('gateway', stream) FROM unnest(:streams::text[]) AS stream WHERE octet_length(stream) < 8000

-- make_durable: commits wait for the disk at least, where the database's default says they needn't; false if even then it proves nothing
SELECT current_setting('fsync') = 'on' AND
    set_config('synchronous_commit', coalesce(nullif(current_setting('synchronous_commit'), 'off'), 'on'), false) <> 'off'

-- found: the layout's version if there is one, and whether the schema holds anything
SELECT to_regclass('gateway.layout') IS NOT NULL AS ours, EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('gateway')) AS used

-- version: of the layout
SELECT version FROM layout

-- set_version: after a migration
UPDATE layout SET version = :version
