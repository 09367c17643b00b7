-- Views: rebuilt from events at will. The sweep reads runs_due and calls_admitted; lists sort the rows of one ms themselves.
CREATE TABLE runs (
    run text COLLATE "C" NOT NULL, principal text NOT NULL, opened_by text NOT NULL, policy text NOT NULL, policy_digest text NOT NULL,
    task_type text NOT NULL, door text NOT NULL, parent text, run_key text, continues text, goal text,
    state text NOT NULL, status text, reason text, turns bigint NOT NULL,
    opened_at bigint NOT NULL, closed_at bigint, due_at bigint, stream text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, run)
);
CREATE INDEX runs_newest ON runs (opened_at);
CREATE INDEX runs_due ON runs (due_at) WHERE due_at IS NOT NULL;

CREATE TABLE calls (
    call text COLLATE "C" NOT NULL, run text NOT NULL, turn bigint NOT NULL, call_id text, tool text NOT NULL, upstream text NOT NULL,
    effect text NOT NULL, state text NOT NULL, reason text, fingerprint text NOT NULL, key text NOT NULL, occurrence bigint NOT NULL,
    attempt bigint NOT NULL, operation_id text, hold text, arguments text, result text, status bigint, usd_micros bigint NOT NULL,
    door text NOT NULL, asked_at bigint NOT NULL, admitted_at bigint, settled_at bigint, stream text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, call)
);
CREATE INDEX calls_newest ON calls (asked_at);
CREATE INDEX calls_admitted ON calls (stream) WHERE state = 'admitted';

CREATE TABLE holds (
    hold text COLLATE "C" NOT NULL, run text NOT NULL, call text NOT NULL, principal text NOT NULL, tool text NOT NULL, digest text NOT NULL,
    state text NOT NULL, reason text, show text NOT NULL, held_at bigint NOT NULL, expires_at bigint NOT NULL, execute_by bigint,
    ended_by text, stream text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, hold)
);
CREATE INDEX holds_newest ON holds (held_at);

CREATE TABLE votes (
    id text COLLATE "C" NOT NULL, hold text NOT NULL, by text NOT NULL, vote text NOT NULL, at bigint NOT NULL, note text NOT NULL,
    stream text COLLATE "C" NOT NULL,
    PRIMARY KEY (stream, id)
);
CREATE INDEX votes_newest ON votes (at);

CREATE TABLE tools (
    tool text COLLATE "C" NOT NULL, digest text NOT NULL, stream text COLLATE "C" NOT NULL, PRIMARY KEY (stream, tool)
);
