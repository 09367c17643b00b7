-- What every store reads and clears. `-- name: what it is for` begins a statement; `?` is a value, `:name` one that it names.

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

-- streams: all streams that have left a row anywhere
SELECT stream FROM events UNION SELECT stream FROM runs UNION SELECT stream FROM calls UNION SELECT stream FROM holds
UNION SELECT stream FROM votes UNION SELECT stream FROM tools UNION SELECT stream FROM checkpoints

-- clear_runs: before a rebuild
DELETE FROM runs

-- view_runs: all rows of a stream
SELECT * FROM runs WHERE stream = ?

-- newest_runs: newest first; a filter that is NULL filters nothing
SELECT * FROM runs
WHERE ((opened_at, length(run), run) <
        (SELECT opened_at, length(run), run FROM runs WHERE stream = :before_stream AND run = :before) OR :before IS NULL)
    AND (run = :run OR :run IS NULL) AND (principal = :principal OR :principal IS NULL) AND (policy = :policy OR :policy IS NULL)
    AND (task_type = :task_type OR :task_type IS NULL) AND (parent = :parent OR :parent IS NULL)
    AND (run_key = :run_key OR :run_key IS NULL) AND (state = :state OR :state IS NULL) AND (status = :status OR :status IS NULL)
    AND (reason = :reason OR :reason IS NULL) AND (stream = :stream OR :stream IS NULL)
ORDER BY opened_at DESC, length(run) DESC, run DESC LIMIT :limit

-- clear_calls: before a rebuild
DELETE FROM calls

-- view_calls: all rows of a stream
SELECT * FROM calls WHERE stream = ?

-- newest_calls: newest first; a filter that is NULL filters nothing
SELECT * FROM calls
WHERE ((asked_at, length(call), call) <
        (SELECT asked_at, length(call), call FROM calls WHERE stream = :before_stream AND call = :before) OR :before IS NULL)
    AND (call = :call OR :call IS NULL) AND (run = :run OR :run IS NULL) AND (turn = :turn OR :turn IS NULL)
    AND (call_id = :call_id OR :call_id IS NULL) AND (tool = :tool OR :tool IS NULL)
    AND (upstream = :upstream OR :upstream IS NULL) AND (effect = :effect OR :effect IS NULL)
    AND (state = :state OR :state IS NULL) AND (reason = :reason OR :reason IS NULL)
    AND (fingerprint = :fingerprint OR :fingerprint IS NULL) AND (key = :key OR :key IS NULL)
    AND (operation_id = :operation_id OR :operation_id IS NULL) AND (hold = :hold OR :hold IS NULL)
    AND (stream = :stream OR :stream IS NULL)
ORDER BY asked_at DESC, length(call) DESC, call DESC LIMIT :limit

-- newest_calls_of_stream: the same within one stream, by its part of the table alone
SELECT * FROM calls
WHERE stream = :stream
    AND ((asked_at, length(call), call) <
        (SELECT asked_at, length(call), call FROM calls WHERE stream = :before_stream AND call = :before) OR :before IS NULL)
    AND (call = :call OR :call IS NULL) AND (run = :run OR :run IS NULL) AND (turn = :turn OR :turn IS NULL)
    AND (call_id = :call_id OR :call_id IS NULL) AND (tool = :tool OR :tool IS NULL)
    AND (upstream = :upstream OR :upstream IS NULL) AND (effect = :effect OR :effect IS NULL)
    AND (state = :state OR :state IS NULL) AND (reason = :reason OR :reason IS NULL)
    AND (fingerprint = :fingerprint OR :fingerprint IS NULL) AND (key = :key OR :key IS NULL)
    AND (operation_id = :operation_id OR :operation_id IS NULL) AND (hold = :hold OR :hold IS NULL)
ORDER BY asked_at DESC, length(call) DESC, call DESC LIMIT :limit

-- clear_holds: before a rebuild
DELETE FROM holds

-- view_holds: all rows of a stream
SELECT * FROM holds WHERE stream = ?

-- newest_holds: newest first; a filter that is NULL filters nothing
SELECT * FROM holds
WHERE ((held_at, length(hold), hold) <
        (SELECT held_at, length(hold), hold FROM holds WHERE stream = :before_stream AND hold = :before) OR :before IS NULL)
    AND (hold = :hold OR :hold IS NULL) AND (run = :run OR :run IS NULL) AND (call = :call OR :call IS NULL)
    AND (principal = :principal OR :principal IS NULL) AND (tool = :tool OR :tool IS NULL) AND (state = :state OR :state IS NULL)
    AND (stream = :stream OR :stream IS NULL)
ORDER BY held_at DESC, length(hold) DESC, hold DESC LIMIT :limit

-- clear_votes: before a rebuild
DELETE FROM votes

-- view_votes: all rows of a stream
SELECT * FROM votes WHERE stream = ?

-- newest_votes: newest first; a filter that is NULL filters nothing
SELECT * FROM votes
WHERE ((at, length(id), id) <
        (SELECT at, length(id), id FROM votes WHERE stream = :before_stream AND id = :before) OR :before IS NULL)
    AND (id = :id OR :id IS NULL) AND (hold = :hold OR :hold IS NULL) AND ("by" = :by OR :by IS NULL)
    AND (vote = :vote OR :vote IS NULL) AND (stream = :stream OR :stream IS NULL)
ORDER BY at DESC, length(id) DESC, id DESC LIMIT :limit

-- clear_tools: before a rebuild
DELETE FROM tools

-- view_tools: all rows of a stream
SELECT * FROM tools WHERE stream = ?
