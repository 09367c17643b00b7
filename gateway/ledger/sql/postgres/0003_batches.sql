-- A batch takes two round trips: one locks and reads, one writes and commits; in between a process decides. The locks are the session's, since
-- no transaction is open meanwhile. A session that then says nothing for 3 s is ended, its locks with it.
--
-- Locks are let go before the disk is waited for, so the next batch of a stream needn't wait for it too. What builds on a commit comes later in
-- the same log: it can't outlive it. Whoever only reads has to wait by `flush` before it tells anybody.

CREATE FUNCTION past(streams text[], seqs bigint[], page integer) RETURNS SETOF events LANGUAGE sql AS $$
    SELECT found.* FROM unnest(streams, seqs) AS known (stream, seq)
    CROSS JOIN LATERAL (
        SELECT * FROM events WHERE events.stream = known.stream AND events.seq > known.seq ORDER BY events.seq LIMIT page
    ) AS found
$$;

-- Keys come in ascending order, so that no two sessions wait for each other. What is read is read after the locks were got: each query of such
-- a function sees what is committed when it begins.
CREATE FUNCTION begin_batch(keys bigint[], streams text[], seqs bigint[], page integer) RETURNS SETOF events LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('idle_session_timeout', '3s', false);
    PERFORM pg_advisory_lock(key) FROM unnest(keys) AS key;
    RETURN QUERY SELECT * FROM past(streams, seqs, page);
END $$;

CREATE FUNCTION release() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_unlock_all();
    PERFORM set_config('idle_session_timeout', '0', false);
END $$;

-- Upserts leave alone what never changes, so that its indexes aren't touched.
CREATE PROCEDURE put(
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
            status = excluded.status, usd_micros = excluded.usd_micros, admitted_at = excluded.admitted_at, settled_at = excluded.settled_at;
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

-- Everything committed before this is durable once the transaction that calls it has ended: on this disk, and where the server is set up so on its
-- standbys.
CREATE FUNCTION flush() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('synchronous_commit') = 'off' THEN
        PERFORM set_config('synchronous_commit', 'on', true);
    END IF;
    PERFORM pg_logical_emit_message(true, 'gateway', '');
END $$;

CREATE PROCEDURE end_batch(
    new_events events[], new_payloads payloads[], new_policies policies[],
    new_runs runs[], new_calls calls[], new_holds holds[], new_votes votes[], new_tools tools[]
) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('synchronous_commit', 'off', true);
    CALL put(new_events, new_payloads, new_policies, new_runs, new_calls, new_holds, new_votes, new_tools);
    COMMIT;
    PERFORM release();
    PERFORM flush();
    COMMIT;
END $$;
