-- Up to which event the views show everything: rows of calls are written a little later than the events, and caught up after a crash.
-- Events are never deleted, so a later one has a higher rowid.
BEGIN IMMEDIATE;

CREATE TABLE shown (event INTEGER NOT NULL) STRICT;
INSERT INTO shown SELECT coalesce(max(rowid), 0) FROM events;

PRAGMA user_version = 3;
COMMIT;
