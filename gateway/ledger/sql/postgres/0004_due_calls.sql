-- Calls say when the sweep must look after them: a lease ends, an approved call should have run at once, a doubt is to be probed.
-- And runs are found by when they closed, for retention.
ALTER TABLE calls ADD COLUMN due_at bigint;

UPDATE calls SET due_at = (
    SELECT (body::json ->> 'lease_until')::bigint FROM events
    WHERE stream = calls.stream AND kind = 'CallAdmitted' AND body::json ->> 'call' = calls.call ORDER BY seq DESC LIMIT 1
) WHERE state = 'admitted';

UPDATE calls SET due_at = (
    SELECT approved.at + 5000 FROM events AS approved
    WHERE approved.stream = calls.stream AND approved.kind = 'HoldApproved' AND approved.body::json ->> 'call' = calls.call
) WHERE state = 'ready' AND EXISTS (
    SELECT FROM events AS held, json_array_elements(held.body::json -> 'requirements') AS requirement
    WHERE held.stream = calls.stream AND held.kind = 'CallHeld' AND held.body::json ->> 'call' = calls.call
        AND requirement ->> 'execute' = 'at_once'
);

DROP INDEX calls_admitted;
CREATE INDEX calls_due ON calls (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX runs_closed ON runs (closed_at) WHERE closed_at IS NOT NULL AND parent IS NULL;

-- Upserts leave alone what never changes, so that its indexes aren't touched.
CREATE OR REPLACE PROCEDURE put(
    new_events events[], new_payloads payloads[], new_policies policies[],
    new_runs runs[], new_calls calls[], new_holds holds[], new_votes votes[], new_tools tools[]
) LANGUAGE plpgsql AS $$
BEGIN
    IF cardinality(new_events) > 0 THEN
        INSERT INTO events SELECT * FROM unnest(new_events);
    END IF;
    IF cardinality(new_payloads) > 0 THEN
        INSERT INTO payloads SELECT * FROM unnest(new_payloads) ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(new_policies) > 0 THEN
        INSERT INTO policies SELECT * FROM unnest(new_policies) ON CONFLICT DO NOTHING;
    END IF;
    IF cardinality(new_runs) > 0 THEN
        INSERT INTO runs SELECT * FROM unnest(new_runs)
        ON CONFLICT (stream, run) DO UPDATE SET
            state = excluded.state, status = excluded.status, reason = excluded.reason, turns = excluded.turns, closed_at = excluded.closed_at,
            due_at = excluded.due_at;
    END IF;
    IF cardinality(new_calls) > 0 THEN
        INSERT INTO calls SELECT * FROM unnest(new_calls)
        ON CONFLICT (stream, call) DO UPDATE SET
            turn = excluded.turn, upstream = excluded.upstream, effect = excluded.effect, state = excluded.state, reason = excluded.reason,
            key = excluded.key, occurrence = excluded.occurrence, attempt = excluded.attempt, hold = excluded.hold, result = excluded.result,
            status = excluded.status, usd_micros = excluded.usd_micros, admitted_at = excluded.admitted_at, settled_at = excluded.settled_at,
            due_at = excluded.due_at;
    END IF;
    IF cardinality(new_holds) > 0 THEN
        INSERT INTO holds SELECT * FROM unnest(new_holds)
        ON CONFLICT (stream, hold) DO UPDATE SET
            state = excluded.state, reason = excluded.reason, expires_at = excluded.expires_at, execute_by = excluded.execute_by,
            ended_by = excluded.ended_by;
    END IF;
    IF cardinality(new_votes) > 0 THEN
        INSERT INTO votes SELECT * FROM unnest(new_votes)
        ON CONFLICT (stream, id) DO UPDATE SET vote = excluded.vote, note = excluded.note;
    END IF;
    IF cardinality(new_tools) > 0 THEN
        INSERT INTO tools SELECT * FROM unnest(new_tools) ON CONFLICT (stream, tool) DO UPDATE SET digest = excluded.digest;
    END IF;
END $$;
