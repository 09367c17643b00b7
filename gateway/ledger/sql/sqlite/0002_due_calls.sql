-- Calls say when the sweep must look after them: a lease ends, an approved call should have run at once, a doubt is to be probed.
-- And runs are found by when they closed, for retention.
BEGIN IMMEDIATE;

CREATE TABLE due_calls (
    call TEXT NOT NULL, run TEXT NOT NULL, turn INTEGER NOT NULL, call_id TEXT, tool TEXT NOT NULL, upstream TEXT NOT NULL,
    effect TEXT NOT NULL, state TEXT NOT NULL, reason TEXT, fingerprint TEXT NOT NULL, key TEXT NOT NULL, occurrence INTEGER NOT NULL,
    attempt INTEGER NOT NULL, operation_id TEXT, hold TEXT, arguments TEXT, result TEXT, status INTEGER, usd_micros INTEGER NOT NULL,
    door TEXT NOT NULL, asked_at INTEGER NOT NULL, admitted_at INTEGER, settled_at INTEGER, due_at INTEGER, stream TEXT NOT NULL,
    PRIMARY KEY (stream, call)
) STRICT;

INSERT INTO due_calls
SELECT call, run, turn, call_id, tool, upstream, effect, state, reason, fingerprint, key, occurrence, attempt, operation_id, hold, arguments,
    result, status, usd_micros, door, asked_at, admitted_at, settled_at,
    CASE state
        WHEN 'admitted' THEN (
            SELECT body ->> '$.lease_until' FROM events
            WHERE stream = calls.stream AND kind = 'CallAdmitted' AND body ->> '$.call' = calls.call ORDER BY seq DESC LIMIT 1
        )
        WHEN 'ready' THEN (
            SELECT approved.at + 5000 FROM events AS approved, events AS held
            WHERE approved.stream = calls.stream AND approved.kind = 'HoldApproved' AND approved.body ->> '$.call' = calls.call
                AND held.stream = calls.stream AND held.kind = 'CallHeld' AND held.body ->> '$.call' = calls.call
                AND EXISTS (SELECT 1 FROM json_each(held.body, '$.requirements') WHERE value ->> '$.execute' = 'at_once')
        )
    END,
    stream
FROM calls;

DROP TABLE calls;
ALTER TABLE due_calls RENAME TO calls;
CREATE INDEX calls_newest ON calls (asked_at);
CREATE INDEX calls_due ON calls (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_closed ON runs (closed_at) WHERE closed_at IS NOT NULL AND parent IS NULL;

PRAGMA user_version = 2;
COMMIT;
