-- What the SQLite store writes. `-- name: what it is for` begins a statement.
-- Upserts leave alone what never changes, so that its indexes aren't touched.

-- add_event: a fact, at the next place of its stream
INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- show: the views show all events so far
UPDATE shown SET event = (SELECT coalesce(max(rowid), 0) FROM events)

-- shown: up to which event, and which is the last
SELECT event, (SELECT coalesce(max(rowid), 0) FROM events) FROM shown

-- unshown: streams with events that the views don't show yet
SELECT DISTINCT stream FROM events WHERE rowid > (SELECT event FROM shown)

-- add_payload: the bytes behind a hash; big ones of a stream stand once
INSERT INTO payloads VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- add_policy: a text by its digest
INSERT INTO policies VALUES (?, ?) ON CONFLICT DO NOTHING

-- put_checkpoint: a stream's latest checkpoint
INSERT INTO checkpoints VALUES (?, ?, ?, ?)
ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, fold_version = excluded.fold_version, state = excluded.state

-- add_probe: about as much as a batch writes
INSERT OR REPLACE INTO probes VALUES (1, zeroblob(65536))

-- erase: some of a stream's payloads
DELETE FROM payloads WHERE rowid IN (SELECT rowid FROM payloads WHERE stream = ? LIMIT ?)

-- put_runs: a run as it is now
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, run) DO UPDATE SET
    state = excluded.state, status = excluded.status, reason = excluded.reason, turns = excluded.turns, closed_at = excluded.closed_at,
    due_at = excluded.due_at

-- put_calls: a call as it is now
INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, call) DO UPDATE SET
    turn = excluded.turn, upstream = excluded.upstream, effect = excluded.effect, state = excluded.state, reason = excluded.reason,
    key = excluded.key, occurrence = excluded.occurrence, attempt = excluded.attempt, hold = excluded.hold, result = excluded.result,
    status = excluded.status, usd_micros = excluded.usd_micros, admitted_at = excluded.admitted_at, settled_at = excluded.settled_at,
    due_at = excluded.due_at

-- put_holds: a hold as it is now
INSERT INTO holds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, hold) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, expires_at = excluded.expires_at, execute_by = excluded.execute_by,
    ended_by = excluded.ended_by

-- put_votes: a vote as it is now
INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, id) DO UPDATE SET vote = excluded.vote, note = excluded.note

-- put_tools: a tool's pinned digest as it is now
INSERT INTO tools VALUES (?, ?, ?)
ON CONFLICT (stream, tool) DO UPDATE SET digest = excluded.digest
