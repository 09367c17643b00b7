-- Calls say when the sweep must look after them: a lease ends, an approved call should have run at once, a doubt is to be probed.
-- And runs are found by when they closed, for retention.
BEGIN IMMEDIATE;

ALTER TABLE calls ADD COLUMN due_at INTEGER;

UPDATE calls SET due_at = (
    SELECT body ->> '$.lease_until' FROM events
    WHERE stream = calls.stream AND kind = 'CallAdmitted' AND body ->> '$.call' = calls.call ORDER BY seq DESC LIMIT 1
) WHERE state = 'admitted';

UPDATE calls SET due_at = (
    SELECT approved.at + 5000 FROM events AS approved
    WHERE approved.stream = calls.stream AND approved.kind = 'HoldApproved' AND approved.body ->> '$.call' = calls.call
) WHERE state = 'ready' AND EXISTS (
    SELECT 1 FROM events AS held, json_each(held.body, '$.requirements') AS requirement
    WHERE held.stream = calls.stream AND held.kind = 'CallHeld' AND held.body ->> '$.call' = calls.call
        AND requirement.value ->> '$.execute' = 'at_once'
);

DROP INDEX calls_admitted;
CREATE INDEX calls_due ON calls (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_closed ON runs (closed_at) WHERE closed_at IS NOT NULL AND parent IS NULL;

PRAGMA user_version = 2;
COMMIT;
