-- What a person is called for, and how deliveries were answered. Times are Unix seconds.

-- The conditions that stand, and those that are gone and not told so yet; one row each.
CREATE TABLE alerts (
    condition TEXT PRIMARY KEY,
    text      TEXT NOT NULL,
    remedy    TEXT NOT NULL,
    since     INTEGER,            -- NULL: nobody knows
    raised_at INTEGER NOT NULL,
    told      INTEGER NOT NULL CHECK (told IN (0, 1)),   -- that it is there
    gone_at   INTEGER             -- NULL: it is still there
) STRICT, WITHOUT ROWID;

-- How deliveries were answered, by hours since the epoch; a day of them is kept.
CREATE TABLE deliveries (
    hour       INTEGER PRIMARY KEY,
    good       INTEGER NOT NULL,
    bad        INTEGER NOT NULL,
    mismatched INTEGER NOT NULL
) STRICT;

-- Looked for every few seconds, however many events are open.
CREATE INDEX events_dead ON events (received_at) WHERE dead_letter = 1;
