-- The ledger's tables. Written once; a later change is a new numbered file.
-- Big tables keep their rowid: a batch over many streams then fills few pages, where a table in key order would touch one a stream.
BEGIN IMMEDIATE;

-- Facts. Append-only: the triggers say so, the chain of hashes proves it.
CREATE TABLE events (
    stream TEXT NOT NULL,
    seq INTEGER NOT NULL CHECK (seq > 0),
    event_id TEXT NOT NULL,
    at INTEGER NOT NULL,
    kind TEXT NOT NULL,
    version INTEGER NOT NULL,
    body TEXT NOT NULL,
    hash TEXT NOT NULL,
    PRIMARY KEY (stream, seq)
) STRICT;

CREATE TRIGGER events_are_never_changed BEFORE UPDATE ON events
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

CREATE TRIGGER events_are_never_deleted BEFORE DELETE ON events
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;

-- Bytes beside the events, which hold only hash = sha256(salt + bytes): rows can be erased, the chain stays whole.
-- An index by hash would write a page of its own for nearly every row. By stream, rows of one time stand together; a look goes through
-- the stream's rows (0.2 ms a thousand). Equal bytes of a stream may stand twice while they are small, for that costs less than to find out.
CREATE TABLE payloads (stream TEXT NOT NULL, hash TEXT NOT NULL, salt BLOB NOT NULL, bytes BLOB NOT NULL) STRICT;
CREATE INDEX payloads_of_stream ON payloads (stream);
CREATE UNIQUE INDEX payloads_big ON payloads (stream, hash) WHERE length(bytes) >= 4096;

-- Texts by digest, kept for good: what a run was governed by can be compiled again.
CREATE TABLE policies (digest TEXT PRIMARY KEY, text TEXT NOT NULL) STRICT, WITHOUT ROWID;

-- Disposable: a state as text, so that a load needn't fold a stream from its beginning.
CREATE TABLE checkpoints (
    stream TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    fold_version INTEGER NOT NULL,
    state TEXT NOT NULL
) STRICT;

-- What a probe writes and deletes after a fault.
CREATE TABLE probes (number INTEGER PRIMARY KEY, bytes BLOB NOT NULL) STRICT;

-- Views: rebuilt from events at will. The sweep reads runs_due and calls_admitted; lists sort the rows of one ms themselves.
CREATE TABLE runs (
    run TEXT NOT NULL, principal TEXT NOT NULL, opened_by TEXT NOT NULL, policy TEXT NOT NULL, policy_digest TEXT NOT NULL,
    task_type TEXT NOT NULL, door TEXT NOT NULL, parent TEXT, run_key TEXT, continues TEXT, goal TEXT,
    state TEXT NOT NULL, status TEXT, reason TEXT, turns INTEGER NOT NULL,
    opened_at INTEGER NOT NULL, closed_at INTEGER, due_at INTEGER, stream TEXT NOT NULL,
    PRIMARY KEY (stream, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX runs_newest ON runs (opened_at);
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE calls (
    call TEXT NOT NULL, run TEXT NOT NULL, turn INTEGER NOT NULL, call_id TEXT, tool TEXT NOT NULL, upstream TEXT NOT NULL,
    effect TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, fingerprint TEXT NOT NULL, key TEXT NOT NULL, occurrence INTEGER NOT NULL,
    attempt INTEGER NOT NULL, operation_id TEXT, hold TEXT, arguments TEXT, result TEXT, status INTEGER, usd_micros INTEGER NOT NULL,
    door TEXT NOT NULL, asked_at INTEGER NOT NULL, admitted_at INTEGER, settled_at INTEGER, stream TEXT NOT NULL,
    PRIMARY KEY (stream, call)
) STRICT;
CREATE INDEX calls_newest ON calls (asked_at);
CREATE INDEX calls_admitted ON calls (stream) WHERE state = 'admitted';

CREATE TABLE holds (
    hold TEXT NOT NULL, run TEXT NOT NULL, call TEXT NOT NULL, principal TEXT NOT NULL, tool TEXT NOT NULL, digest TEXT NOT NULL,
    state TEXT NOT NULL, reason TEXT, show TEXT NOT NULL, held_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, execute_by INTEGER,
    ended_by TEXT, stream TEXT NOT NULL,
    PRIMARY KEY (stream, hold)
) STRICT, WITHOUT ROWID;
CREATE INDEX holds_newest ON holds (held_at);

CREATE TABLE votes (
    id TEXT NOT NULL, hold TEXT NOT NULL, "by" TEXT NOT NULL, vote TEXT NOT NULL, at INTEGER NOT NULL, note TEXT NOT NULL,
    stream TEXT NOT NULL,
    PRIMARY KEY (stream, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX votes_newest ON votes (at);

CREATE TABLE tools (tool TEXT NOT NULL, digest TEXT NOT NULL, stream TEXT NOT NULL, PRIMARY KEY (stream, tool)) STRICT, WITHOUT ROWID;

PRAGMA application_id = 1413695319; -- 'TCGW'
PRAGMA user_version = 1;
COMMIT;
