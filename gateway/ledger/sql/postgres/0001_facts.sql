-- What the ledger rests on. Written once; a later change is a new numbered file. All that are missing run in one transaction.
-- Ids compare by their bytes: quicker than by any language's order, and the same on every machine.
CREATE SCHEMA IF NOT EXISTS gateway;

CREATE TABLE layout (version integer NOT NULL);
INSERT INTO layout VALUES (0);

-- Facts. Append-only: the trigger says so, the chain of hashes proves it. Bodies are text: jsonb would refuse some and reorder all.
CREATE TABLE events (
    stream text COLLATE "C" NOT NULL,
    seq bigint NOT NULL CHECK (seq > 0),
    event_id text NOT NULL,
    at bigint NOT NULL,
    kind text NOT NULL,
    version integer NOT NULL,
    body text NOT NULL,
    hash text NOT NULL,
    PRIMARY KEY (stream, seq)
);

CREATE FUNCTION events_are_for_good() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN RAISE EXCEPTION 'events are never changed and never deleted'; END $$;
CREATE TRIGGER events_are_for_good BEFORE UPDATE OR DELETE OR TRUNCATE ON events EXECUTE FUNCTION events_are_for_good();

-- Bytes beside the events, which hold only hash = sha256(salt + bytes): rows can be erased, the chain stays whole.
CREATE TABLE payloads (
    stream text COLLATE "C" NOT NULL, hash text COLLATE "C" NOT NULL, salt bytea NOT NULL, bytes bytea NOT NULL,
    PRIMARY KEY (stream, hash)
);

-- Texts by digest, kept for good: what a run was governed by can be compiled again.
CREATE TABLE policies (digest text COLLATE "C" PRIMARY KEY, text text NOT NULL);

-- Disposable: a state as text, so that a load needn't fold a stream from its beginning.
CREATE TABLE checkpoints (stream text COLLATE "C" PRIMARY KEY, seq bigint NOT NULL, fold_version integer NOT NULL, state text NOT NULL);

-- What a probe writes and deletes after a fault; plain, so that it needs the room it seems to need.
CREATE TABLE probes (bytes bytea NOT NULL);
ALTER TABLE probes ALTER COLUMN bytes SET STORAGE EXTERNAL;
