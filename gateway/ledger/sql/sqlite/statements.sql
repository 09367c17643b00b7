-- Every statement the SQLite store runs. `-- name: what it is for` begins one.
-- Upserts leave alone what never changes, so that its indexes aren't touched.

-- add_event: a fact, at the next place of its stream
INSERT INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- add_payload: the bytes behind a hash; big ones of a stream stand once
INSERT INTO payloads VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING

-- add_policy: a text by its digest
INSERT INTO policies VALUES (?, ?) ON CONFLICT DO NOTHING

-- put_checkpoint: a stream's latest checkpoint
INSERT INTO checkpoints VALUES (?, ?, ?, ?)
ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, fold_version = excluded.fold_version, state = excluded.state

-- add_probe: about as much as a batch writes
INSERT INTO probes VALUES (1, zeroblob(65536))

-- delete_probes: the trace of earlier probes
DELETE FROM probes

-- event_id_at: which event stands at a place
SELECT event_id FROM events WHERE stream = ? AND seq = ?

-- events_from: a stream from a seq on, in order
SELECT * FROM events WHERE stream = ? AND seq >= ? ORDER BY seq LIMIT ?

-- checkpoint: a stream's latest checkpoint
SELECT * FROM checkpoints WHERE stream = ?

-- payload: the bytes behind a hash
SELECT bytes FROM payloads WHERE stream = ? AND hash = ? LIMIT 1

-- payloads: all payloads of a stream
SELECT * FROM payloads WHERE stream = ?

-- policy_text: the text behind a digest
SELECT text FROM policies WHERE digest = ?

-- due: streams whose root says that something happens by itself by now
SELECT stream FROM runs WHERE due_at <= ? ORDER BY due_at LIMIT ?

-- in_flight: streams with an admitted, unsettled call
SELECT DISTINCT stream FROM calls WHERE due_at IS NOT NULL AND state = 'admitted'

-- due_calls: calls that must be looked after by now
SELECT call FROM calls WHERE due_at <= ? ORDER BY due_at LIMIT ?

-- erasable: trees with payloads whose root has closed by then, oldest first, from a place on
SELECT closed_at, stream FROM runs
WHERE parent IS NULL AND closed_at <= ? AND (closed_at, stream) > (?, ?) AND EXISTS (SELECT 1 FROM payloads WHERE payloads.stream = runs.stream)
ORDER BY closed_at, stream LIMIT ?

-- erase: some of a stream's payloads
DELETE FROM payloads WHERE rowid IN (SELECT rowid FROM payloads WHERE stream = ? LIMIT ?)

-- streams: all streams that have left a row anywhere
SELECT stream FROM events UNION SELECT stream FROM runs UNION SELECT stream FROM calls UNION SELECT stream FROM holds
UNION SELECT stream FROM votes UNION SELECT stream FROM tools UNION SELECT stream FROM checkpoints

-- put_runs: a run as it is now
INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, run) DO UPDATE SET
    state = excluded.state, status = excluded.status, reason = excluded.reason, turns = excluded.turns, closed_at = excluded.closed_at,
    due_at = excluded.due_at

-- clear_runs: before a rebuild
DELETE FROM runs

-- view_runs: all rows of a stream
SELECT * FROM runs WHERE stream = ?

-- newest_runs: newest first; a filter that is NULL filters nothing
SELECT * FROM runs
WHERE (:before IS NULL OR (opened_at, length(run), run) <
        (SELECT opened_at, length(run), run FROM runs WHERE stream = :before_stream AND run = :before))
    AND (:run IS NULL OR run = :run) AND (:principal IS NULL OR principal = :principal) AND (:policy IS NULL OR policy = :policy)
    AND (:task_type IS NULL OR task_type = :task_type) AND (:parent IS NULL OR parent = :parent)
    AND (:run_key IS NULL OR run_key = :run_key) AND (:state IS NULL OR state = :state) AND (:status IS NULL OR status = :status)
    AND (:reason IS NULL OR reason = :reason) AND (:stream IS NULL OR stream = :stream)
ORDER BY opened_at DESC, length(run) DESC, run DESC LIMIT :limit

-- put_calls: a call as it is now
INSERT INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, call) DO UPDATE SET
    turn = excluded.turn, upstream = excluded.upstream, effect = excluded.effect, state = excluded.state, reason = excluded.reason,
    key = excluded.key, occurrence = excluded.occurrence, attempt = excluded.attempt, hold = excluded.hold, result = excluded.result,
    status = excluded.status, usd_micros = excluded.usd_micros, admitted_at = excluded.admitted_at, settled_at = excluded.settled_at,
    due_at = excluded.due_at

-- clear_calls: before a rebuild
DELETE FROM calls

-- view_calls: all rows of a stream
SELECT * FROM calls WHERE stream = ?

-- newest_calls: newest first; a filter that is NULL filters nothing
SELECT * FROM calls
WHERE (:before IS NULL OR (asked_at, length(call), call) <
        (SELECT asked_at, length(call), call FROM calls WHERE stream = :before_stream AND call = :before))
    AND (:call IS NULL OR call = :call) AND (:run IS NULL OR run = :run) AND (:turn IS NULL OR turn = :turn)
    AND (:call_id IS NULL OR call_id = :call_id) AND (:tool IS NULL OR tool = :tool)
    AND (:upstream IS NULL OR upstream = :upstream) AND (:effect IS NULL OR effect = :effect)
    AND (:state IS NULL OR state = :state) AND (:reason IS NULL OR reason = :reason)
    AND (:fingerprint IS NULL OR fingerprint = :fingerprint) AND (:key IS NULL OR key = :key)
    AND (:operation_id IS NULL OR operation_id = :operation_id) AND (:hold IS NULL OR hold = :hold)
    AND (:stream IS NULL OR stream = :stream)
ORDER BY asked_at DESC, length(call) DESC, call DESC LIMIT :limit

-- newest_calls_of_stream: the same within one stream, by its part of the table alone
SELECT * FROM calls
WHERE stream = :stream
    AND (:before IS NULL OR (asked_at, length(call), call) <
        (SELECT asked_at, length(call), call FROM calls WHERE stream = :before_stream AND call = :before))
    AND (:call IS NULL OR call = :call) AND (:run IS NULL OR run = :run) AND (:turn IS NULL OR turn = :turn)
    AND (:call_id IS NULL OR call_id = :call_id) AND (:tool IS NULL OR tool = :tool)
    AND (:upstream IS NULL OR upstream = :upstream) AND (:effect IS NULL OR effect = :effect)
    AND (:state IS NULL OR state = :state) AND (:reason IS NULL OR reason = :reason)
    AND (:fingerprint IS NULL OR fingerprint = :fingerprint) AND (:key IS NULL OR key = :key)
    AND (:operation_id IS NULL OR operation_id = :operation_id) AND (:hold IS NULL OR hold = :hold)
ORDER BY asked_at DESC, length(call) DESC, call DESC LIMIT :limit

-- put_holds: a hold as it is now
INSERT INTO holds VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, hold) DO UPDATE SET
    state = excluded.state, reason = excluded.reason, expires_at = excluded.expires_at, execute_by = excluded.execute_by,
    ended_by = excluded.ended_by

-- clear_holds: before a rebuild
DELETE FROM holds

-- view_holds: all rows of a stream
SELECT * FROM holds WHERE stream = ?

-- newest_holds: newest first; a filter that is NULL filters nothing
SELECT * FROM holds
WHERE (:before IS NULL OR (held_at, length(hold), hold) <
        (SELECT held_at, length(hold), hold FROM holds WHERE stream = :before_stream AND hold = :before))
    AND (:hold IS NULL OR hold = :hold) AND (:run IS NULL OR run = :run) AND (:call IS NULL OR call = :call)
    AND (:principal IS NULL OR principal = :principal) AND (:tool IS NULL OR tool = :tool) AND (:state IS NULL OR state = :state)
    AND (:stream IS NULL OR stream = :stream)
ORDER BY held_at DESC, length(hold) DESC, hold DESC LIMIT :limit

-- put_votes: a vote as it is now
INSERT INTO votes VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (stream, id) DO UPDATE SET vote = excluded.vote, note = excluded.note

-- clear_votes: before a rebuild
DELETE FROM votes

-- view_votes: all rows of a stream
SELECT * FROM votes WHERE stream = ?

-- newest_votes: newest first; a filter that is NULL filters nothing
SELECT * FROM votes
WHERE (:before IS NULL OR (at, length(id), id) <
        (SELECT at, length(id), id FROM votes WHERE stream = :before_stream AND id = :before))
    AND (:id IS NULL OR id = :id) AND (:hold IS NULL OR hold = :hold) AND (:by IS NULL OR "by" = :by)
    AND (:vote IS NULL OR vote = :vote) AND (:stream IS NULL OR stream = :stream)
ORDER BY at DESC, length(id) DESC, id DESC LIMIT :limit

-- put_tools: a tool's pinned digest as it is now
INSERT INTO tools VALUES (?, ?, ?)
ON CONFLICT (stream, tool) DO UPDATE SET digest = excluded.digest

-- clear_tools: before a rebuild
DELETE FROM tools

-- view_tools: all rows of a stream
SELECT * FROM tools WHERE stream = ?
