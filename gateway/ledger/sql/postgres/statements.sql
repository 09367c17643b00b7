-- What only the PostgreSQL store runs. `-- name: what it is for` begins a statement; `?` is a value. The rest are functions in the migrations.

-- begin_batch: keep streams to this session, and what others appended to them
SELECT * FROM begin_batch(?, ?, ?, ?)

-- past: what stands after some seqs
SELECT * FROM past(?, ?, ?)

-- end_batch: write, commit, let go, wait for the disk
CALL end_batch(?, ?, ?, ?, ?, ?, ?, ?)

-- release: let go of what this session keeps
SELECT release()

-- put: write within a transaction
CALL put(?, ?, ?, ?, ?, ?, ?, ?)

-- put_checkpoints: the latest of each stream
INSERT INTO checkpoints SELECT * FROM unnest(?::checkpoints[])
ON CONFLICT (stream) DO UPDATE SET seq = excluded.seq, fold_version = excluded.fold_version, state = excluded.state
    WHERE (checkpoints.fold_version, checkpoints.seq) < (excluded.fold_version, excluded.seq)

-- keep_out: no other process writes to the views until this transaction ends
LOCK TABLE runs, calls, holds, votes, tools IN SHARE ROW EXCLUSIVE MODE

-- erase: some of a stream's payloads
DELETE FROM payloads WHERE (stream, hash) IN (SELECT stream, hash FROM payloads WHERE stream = ? LIMIT ?) RETURNING 1

-- add_probe: about as much as a batch writes
INSERT INTO probes VALUES (?)

-- tell: which streams have news, for the other processes that listen
SELECT pg_notify('gateway', stream) FROM unnest(?::text[]) AS stream WHERE octet_length(stream) < 8000

-- flush: returns when everything committed so far is durable
SELECT flush()

-- is_durable: can a disk be waited for?
SELECT current_setting('fsync') = 'on'

-- layout_alone: one process at a time looks at the layout and changes it
SELECT pg_advisory_xact_lock(4127)

-- found: is there a layout, and does the schema hold anything?
SELECT to_regclass('gateway.layout') IS NOT NULL AS ours, EXISTS (SELECT FROM pg_class WHERE relnamespace = to_regnamespace('gateway')) AS used

-- version: of the layout
SELECT version FROM layout

-- set_version: after a migration
UPDATE layout SET version = ?
