-- The books. Times are Unix seconds, but for columns named _ms.
-- Texts that come from Stripe keep Stripe's spelling; enums of our own are checked, with OR: for IN and more than two
-- values SQLite builds a table at every insert, which doubles its cost.

-- "blld": by it the file is known as ours, and so is each backup of it.
PRAGMA application_id = 1651272804;

CREATE TABLE meta (
    key   TEXT PRIMARY KEY,
    value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Everything that happened once: the claim of an event is its row here.
CREATE TABLE events (
    event_id        TEXT PRIMARY KEY,
    source          TEXT NOT NULL CHECK (source = 'webhook' OR source = 'backfill' OR source = 'import' OR source = 'operator'
                                           OR source = 'job'),
    type            TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status = 'completed' OR status = 'pending' OR status = 'failed'),
    outcome         TEXT CHECK (outcome = 'applied' OR outcome = 'no_effect' OR outcome = 'stale' OR outcome = 'ignored'),
    needs           TEXT,
    reason          TEXT,
    attempts        INTEGER NOT NULL DEFAULT 0,
    error_code      TEXT,
    duplicates      INTEGER NOT NULL DEFAULT 0,
    late_duplicates INTEGER NOT NULL DEFAULT 0,
    dead_letter     INTEGER NOT NULL DEFAULT 0 CHECK (dead_letter IN (0, 1)),
    dismissed       INTEGER NOT NULL DEFAULT 0 CHECK (dismissed IN (0, 1)),
    api_version     TEXT,
    livemode        INTEGER NOT NULL CHECK (livemode IN (0, 1)),
    stripe_account  TEXT,
    object_id       TEXT,
    account_id      TEXT,
    created_at      INTEGER NOT NULL,
    received_at     INTEGER NOT NULL,   -- milliseconds
    tried_at        INTEGER NOT NULL,   -- milliseconds: when it last ran
    woken           INTEGER NOT NULL DEFAULT 0 CHECK (woken IN (0, 1)),   -- what it waits for has come
    processed_at    INTEGER,            -- milliseconds; NULL until completed
    last_error      TEXT,
    CHECK ((status = 'completed') = (outcome IS NOT NULL)),
    CHECK ((status = 'completed') = (processed_at IS NOT NULL)),
    CHECK (status <> 'pending' OR needs <> ''),
    CHECK (status <> 'completed' OR woken = 0),
    CHECK (dead_letter = 0 OR status = 'failed'),
    CHECK (dismissed = 0 OR (status = 'completed' AND outcome = 'ignored'))
) STRICT, WITHOUT ROWID;

CREATE INDEX events_open ON events (status, received_at) WHERE status <> 'completed';
-- What retention may let go one day.
CREATE INDEX events_ignored ON events (received_at) WHERE outcome = 'ignored' AND dismissed = 0;
CREATE INDEX events_dismissed ON events (object_id) WHERE dismissed = 1;
CREATE INDEX events_woken ON events (created_at, event_id) WHERE woken = 1;

-- What an event that is not completed waits for, one row each; any of them wakes it.
CREATE TABLE event_needs (
    need     TEXT NOT NULL,
    event_id TEXT NOT NULL REFERENCES events (event_id) ON DELETE CASCADE,
    PRIMARY KEY (need, event_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX event_needs_event ON event_needs (event_id);

-- An event that is done waits for nothing.
CREATE TRIGGER events_done AFTER UPDATE OF status ON events WHEN NEW.status = 'completed'
BEGIN DELETE FROM event_needs WHERE event_id = NEW.event_id; END;

CREATE TABLE payload_dictionaries (
    dictionary_id INTEGER PRIMARY KEY,
    content       BLOB NOT NULL
) STRICT;

-- The only place where a raw payload is kept. `digest` is the SHA-256 of the bytes as received. `object` is what a thin
-- event names, as Stripe's API told it when it was asked; an empty one: Stripe does not have it.
CREATE TABLE event_payloads (
    event_id  TEXT PRIMARY KEY REFERENCES events (event_id) ON DELETE CASCADE,
    body      BLOB NOT NULL,
    digest    BLOB NOT NULL,
    object    BLOB,
    object_at INTEGER,        -- milliseconds: before the request was sent
    object_told_at INTEGER,   -- seconds, by Stripe's clock: when it answered
    CHECK ((object IS NULL) = (object_at IS NULL)),
    CHECK ((object IS NULL) = (object_told_at IS NULL))
) STRICT, WITHOUT ROWID;

-- What Stripe's API answered to what events waited for, where later runs need it. `answer` is our own JSON; NULL:
-- there is no such thing, or all that was told stands elsewhere in the books.
CREATE TABLE answers (
    need     TEXT PRIMARY KEY,
    answer   TEXT,
    asked_at INTEGER NOT NULL   -- milliseconds: before the request was sent
) STRICT, WITHOUT ROWID;

-- What snapshots taught about prices. `unit_amount` is a decimal text in minor units; NULL: the price has none.
CREATE TABLE prices (
    price_id    TEXT NOT NULL,
    currency    TEXT NOT NULL,
    unit_amount TEXT,
    product_id  TEXT,
    PRIMARY KEY (price_id, currency)
) STRICT, WITHOUT ROWID;

CREATE TABLE accounts (
    account_id         TEXT PRIMARY KEY,
    reference          TEXT,
    reference_strength INTEGER NOT NULL DEFAULT 0,  -- 1 client_reference_id, 2 metadata, 3 operator
    reference_at       INTEGER,
    tier               TEXT,
    deleted_at         INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX accounts_reference ON accounts (reference) WHERE reference IS NOT NULL;

CREATE TABLE tier_changes (
    change_id       INTEGER PRIMARY KEY,
    account_id      TEXT NOT NULL,
    from_tier       TEXT,
    to_tier         TEXT,
    source_event_id TEXT NOT NULL REFERENCES events (event_id),
    at              INTEGER NOT NULL,
    UNIQUE (account_id, source_event_id)
) STRICT;

CREATE TABLE invoices (
    invoice_id      TEXT PRIMARY KEY,
    account_id      TEXT,
    subscription_id TEXT,
    status          TEXT NOT NULL,
    currency        TEXT NOT NULL,
    total           INTEGER NOT NULL,
    amount_paid     INTEGER NOT NULL,
    created_at      INTEGER,
    snapshot_at     INTEGER NOT NULL,
    source_event_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Which payments paid which invoice, by each name of a payment that anything told.
CREATE TABLE invoice_payments (
    invoice_id TEXT NOT NULL,
    payment_id TEXT NOT NULL,
    is_intent  INTEGER NOT NULL CHECK (is_intent IN (0, 1)),   -- 0: a charge
    PRIMARY KEY (invoice_id, payment_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX invoice_payments_payment ON invoice_payments (payment_id);

-- Paid checkouts without an invoice.
CREATE TABLE checkouts (
    checkout_id     TEXT PRIMARY KEY,
    account_id      TEXT,
    payment_intent  TEXT,
    amount_paid     INTEGER NOT NULL,
    currency        TEXT,
    source_event_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX checkouts_payment ON checkouts (payment_intent) WHERE payment_intent IS NOT NULL;

-- Which session made which invoice. The grant is the invoice's; an old table may have given for the session.
CREATE TABLE checkout_invoices (
    checkout_id TEXT PRIMARY KEY,
    invoice_id  TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX checkout_invoices_invoice ON checkout_invoices (invoice_id);

-- Which charge belongs to which payment intent.
CREATE TABLE payment_names (
    charge_id      TEXT PRIMARY KEY,
    payment_intent TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX payment_names_intent ON payment_names (payment_intent);

-- The newest snapshot of each charge. `amount_refunded` is less what a partial capture released.
CREATE TABLE payments (
    charge_id       TEXT PRIMARY KEY,
    payment_intent  TEXT,
    account_id      TEXT,
    currency        TEXT NOT NULL,
    amount_captured INTEGER NOT NULL,
    amount_refunded INTEGER NOT NULL,
    snapshot_at     INTEGER NOT NULL,
    source_event_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX payments_intent ON payments (payment_intent) WHERE payment_intent IS NOT NULL;

-- Refunds and disputes keep the names of their payment as they were told.
CREATE TABLE refunds (
    refund_id       TEXT PRIMARY KEY,
    payment_intent  TEXT,
    charge_id       TEXT,
    amount          INTEGER NOT NULL,
    currency        TEXT NOT NULL,
    status          TEXT,
    created_at      INTEGER NOT NULL,
    failed_at       INTEGER,
    snapshot_at     INTEGER NOT NULL,
    source_event_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX refunds_intent ON refunds (payment_intent) WHERE payment_intent IS NOT NULL;
CREATE INDEX refunds_charge ON refunds (charge_id) WHERE charge_id IS NOT NULL;

CREATE TABLE disputes (
    dispute_id      TEXT PRIMARY KEY,
    payment_intent  TEXT,
    charge_id       TEXT,
    amount          INTEGER NOT NULL,
    currency        TEXT NOT NULL,
    status          TEXT NOT NULL,
    withdrawn_at    INTEGER,
    reinstated_at   INTEGER,
    snapshot_at     INTEGER NOT NULL,
    source_event_id TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX disputes_intent ON disputes (payment_intent) WHERE payment_intent IS NOT NULL;
CREATE INDEX disputes_charge ON disputes (charge_id) WHERE charge_id IS NOT NULL;

CREATE TABLE subscriptions (
    subscription_id    TEXT PRIMARY KEY,
    account_id         TEXT,
    status             TEXT NOT NULL,
    tier               TEXT,
    current_period_end INTEGER,
    ends_at            INTEGER,
    collection_paused  INTEGER NOT NULL CHECK (collection_paused IN (0, 1)),
    pending_tier       TEXT,
    pending_tier_at    INTEGER,
    snapshot_at        INTEGER NOT NULL,
    source_event_id    TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX subscriptions_account ON subscriptions (account_id);
CREATE INDEX subscriptions_due ON subscriptions (pending_tier_at) WHERE pending_tier_at IS NOT NULL;

-- What orders the snapshots of a subscription, kept apart from payloads, which retention removes. `newest` is our own
-- JSON: all snapshots that are tied for the newest. `told` is the state that Stripe told when it was asked which counts.
CREATE TABLE subscription_snapshots (
    subscription_id TEXT PRIMARY KEY REFERENCES subscriptions (subscription_id) ON DELETE CASCADE,
    newest          TEXT NOT NULL,
    listed          TEXT,
    told            TEXT
) STRICT, WITHOUT ROWID;

-- What paid invoices paid for, under tiers.downgrade = "period_end".
CREATE TABLE paid_periods (
    subscription_id TEXT NOT NULL,
    invoice_id      TEXT NOT NULL,
    price_id        TEXT NOT NULL,
    product_id      TEXT,
    lookup_key      TEXT,
    starts_at       INTEGER NOT NULL,
    ends_at         INTEGER NOT NULL,
    PRIMARY KEY (subscription_id, invoice_id, price_id, starts_at, ends_at)
) STRICT, WITHOUT ROWID;

CREATE TABLE subscription_items (
    subscription_id TEXT NOT NULL REFERENCES subscriptions (subscription_id) ON DELETE CASCADE,
    position        INTEGER NOT NULL,
    item_id         TEXT NOT NULL,
    price_id        TEXT NOT NULL,
    quantity        INTEGER,
    gives_tier      INTEGER NOT NULL DEFAULT 0 CHECK (gives_tier IN (0, 1)),
    PRIMARY KEY (subscription_id, position)
) STRICT, WITHOUT ROWID;

-- The ledger. An entry is one effect of one event and of one fact; its lines carry the amounts.
CREATE TABLE ledger_entries (
    entry_id        INTEGER PRIMARY KEY,
    account_id      TEXT NOT NULL,
    kind            TEXT NOT NULL CHECK (kind = 'grant' OR kind = 'clawback' OR kind = 'restore' OR kind = 'adjustment'
                                         OR kind = 'reversal' OR kind = 'import'),
    fact            TEXT NOT NULL UNIQUE,
    source_event_id TEXT NOT NULL UNIQUE REFERENCES events (event_id),
    reverses        INTEGER REFERENCES ledger_entries (entry_id),
    created_at      INTEGER NOT NULL
) STRICT;

CREATE INDEX ledger_entries_account ON ledger_entries (account_id);
CREATE UNIQUE INDEX ledger_entries_reverses ON ledger_entries (reverses) WHERE reverses IS NOT NULL;

CREATE TABLE ledger_lines (
    entry_id          INTEGER NOT NULL REFERENCES ledger_entries (entry_id),
    root              TEXT NOT NULL,
    unit              TEXT NOT NULL,
    amount            INTEGER NOT NULL,
    is_root           INTEGER NOT NULL CHECK (is_root IN (0, 1)),   -- 0: belongs to the entry whose fact is the root
    price_id          TEXT,
    credits_per_unit  INTEGER,
    original_amount   INTEGER,   -- what was paid, in minor units, if the line is converted
    original_currency TEXT,
    fx_rate           TEXT,      -- how many of the unit one of the original currency is, as a decimal
    fx_date           TEXT,      -- the day that the rate is of
    PRIMARY KEY (entry_id, unit)
) STRICT, WITHOUT ROWID;

CREATE INDEX ledger_lines_corrections ON ledger_lines (root, unit, amount) WHERE is_root = 0;

-- What the rows of old credit tables told, one for each event `import:HASH`.
CREATE TABLE imported_rows (
    event_id        TEXT PRIMARY KEY REFERENCES events (event_id),
    source_event_id TEXT NOT NULL,
    source_object   TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX imported_rows_source ON imported_rows (source_event_id);
CREATE INDEX imported_rows_object ON imported_rows (source_object) WHERE source_object IS NOT NULL;

-- Kept equal to the sums of the lines by the one function that posts, proven by `billingd verify`.
CREATE TABLE balances (
    account_id TEXT NOT NULL,
    unit       TEXT NOT NULL,
    balance    INTEGER NOT NULL,
    PRIMARY KEY (account_id, unit)
) STRICT, WITHOUT ROWID;

-- hash = SHA-256(prev_hash ‖ JSON array of the other columns); see store/audit.rs.
CREATE TABLE audit_log (
    seq       INTEGER PRIMARY KEY,
    at        INTEGER NOT NULL,
    actor     TEXT NOT NULL,
    action    TEXT NOT NULL,
    subject   TEXT NOT NULL,
    event_id  TEXT,
    detail    TEXT NOT NULL,
    prev_hash BLOB NOT NULL,
    hash      BLOB NOT NULL
) STRICT;

-- `known_until`: all events of Stripe's from before that moment were fetched; NULL where a run does not show it.
CREATE TABLE reconciliation_runs (
    run_id      INTEGER PRIMARY KEY,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,
    result      TEXT CHECK (result = 'ok' OR result = 'partial' OR result = 'failed'),
    since       INTEGER,
    known_until INTEGER,
    counts      TEXT   -- our own JSON
) STRICT;

CREATE TABLE findings (
    finding_id    INTEGER PRIMARY KEY,
    kind          TEXT NOT NULL,
    subject       TEXT NOT NULL,
    expected      TEXT,
    actual        TEXT,
    status        TEXT NOT NULL CHECK (status = 'open' OR status = 'acknowledged' OR status = 'resolved'),
    first_seen_at INTEGER NOT NULL,
    last_seen_at  INTEGER NOT NULL,
    amount        INTEGER,   -- the money that it is about, in minor units
    currency      TEXT,
    event_id      TEXT,      -- an event that is about it and not completed
    reason        TEXT,      -- why somebody acknowledged it
    CHECK ((amount IS NULL) = (currency IS NULL)),
    UNIQUE (kind, subject)
) STRICT;

-- What one of the base was on a day. What was told first stays.
CREATE TABLE fx_rates (
    date     TEXT NOT NULL CHECK (date IS date(date)),
    currency TEXT NOT NULL,
    base     TEXT NOT NULL,
    rate     TEXT NOT NULL,   -- a decimal
    source   TEXT NOT NULL,
    PRIMARY KEY (date, currency, base)
) STRICT, WITHOUT ROWID;

CREATE TABLE job_runs (
    run_id      INTEGER PRIMARY KEY,
    job         TEXT NOT NULL,
    started_at  INTEGER NOT NULL,
    finished_at INTEGER,                -- NULL: it runs, or its server ended in the middle
    succeeded   INTEGER NOT NULL DEFAULT 0 CHECK (succeeded IN (0, 1)),
    result      TEXT
) STRICT;

-- Without it, each event that retention deletes would be looked for in all tier changes.
CREATE INDEX tier_changes_source ON tier_changes (source_event_id);

-- What is written here stays. A correction is a reversing entry.
CREATE TRIGGER ledger_entries_update BEFORE UPDATE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: post a reversing entry'); END;
CREATE TRIGGER ledger_entries_delete BEFORE DELETE ON ledger_entries
BEGIN SELECT RAISE(ABORT, 'ledger_entries is append-only: post a reversing entry'); END;
CREATE TRIGGER ledger_lines_update BEFORE UPDATE ON ledger_lines
BEGIN SELECT RAISE(ABORT, 'ledger_lines is append-only: post a reversing entry'); END;
CREATE TRIGGER ledger_lines_delete BEFORE DELETE ON ledger_lines
BEGIN SELECT RAISE(ABORT, 'ledger_lines is append-only: post a reversing entry'); END;
CREATE TRIGGER tier_changes_update BEFORE UPDATE ON tier_changes
BEGIN SELECT RAISE(ABORT, 'tier_changes is append-only'); END;
CREATE TRIGGER tier_changes_delete BEFORE DELETE ON tier_changes
BEGIN SELECT RAISE(ABORT, 'tier_changes is append-only'); END;
CREATE TRIGGER fx_rates_update BEFORE UPDATE ON fx_rates
BEGIN SELECT RAISE(ABORT, 'fx_rates is append-only'); END;
CREATE TRIGGER fx_rates_delete BEFORE DELETE ON fx_rates
BEGIN SELECT RAISE(ABORT, 'fx_rates is append-only'); END;
CREATE TRIGGER audit_log_update BEFORE UPDATE ON audit_log
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;
CREATE TRIGGER audit_log_delete BEFORE DELETE ON audit_log
BEGIN SELECT RAISE(ABORT, 'audit_log is append-only'); END;

-- The stable interface for the user's own app. Times are Unix seconds.
CREATE VIEW v_events AS
SELECT event_id, source, type, status, outcome, needs, reason, attempts, error_code, duplicates, late_duplicates,
       dead_letter, api_version, livemode, stripe_account, object_id, account_id, created_at,
       received_at / 1000 AS received_at, processed_at / 1000 AS processed_at, last_error,
       tried_at / 1000 AS tried_at, dismissed
FROM events;

CREATE VIEW v_ledger AS
SELECT e.entry_id, e.account_id, a.reference, e.kind, e.fact, l.root, l.unit, l.amount, e.source_event_id, e.reverses,
       e.created_at, l.original_amount, l.original_currency, l.fx_rate, l.fx_date
FROM ledger_entries e
JOIN ledger_lines l ON l.entry_id = e.entry_id
LEFT JOIN accounts a ON a.account_id = e.account_id;

CREATE VIEW v_balances AS
SELECT b.account_id, a.reference, b.unit, b.balance, max(b.balance, 0) AS available
FROM balances b
LEFT JOIN accounts a ON a.account_id = b.account_id;

CREATE VIEW v_accounts AS
SELECT account_id, reference, tier, deleted_at IS NOT NULL AS deleted
FROM accounts;

CREATE VIEW v_subscriptions AS
SELECT s.subscription_id, s.account_id, s.status, s.tier,
       -- Not ORDER BY inside of group_concat: the SQLite of many a user's own app, such as Debian 12's, cannot read that.
       (SELECT group_concat(price_id, ',') FROM (SELECT price_id FROM subscription_items i
         WHERE i.subscription_id = s.subscription_id ORDER BY price_id)) AS price_ids,
       (SELECT quantity FROM subscription_items i
         WHERE i.subscription_id = s.subscription_id ORDER BY gives_tier DESC, position LIMIT 1) AS quantity,
       s.current_period_end, s.ends_at, s.collection_paused, s.pending_tier, s.pending_tier_at, s.source_event_id
FROM subscriptions s;

CREATE VIEW v_invoices AS
SELECT invoice_id, account_id, subscription_id, status, currency, total, amount_paid, source_event_id
FROM invoices;

CREATE VIEW v_refunds AS
SELECT refund_id, coalesce(payment_intent, charge_id) AS payment, amount, currency, status
FROM refunds;

CREATE VIEW v_disputes AS
SELECT dispute_id, coalesce(payment_intent, charge_id) AS payment, amount, currency, status
FROM disputes;

CREATE VIEW v_tier_changes AS
SELECT account_id, from_tier, to_tier, source_event_id, at
FROM tier_changes;

CREATE VIEW v_audit AS
SELECT seq, at, actor, action, subject, event_id, detail
FROM audit_log;

CREATE VIEW v_findings AS
SELECT finding_id, kind, subject, expected, actual, status, first_seen_at, last_seen_at, amount, currency, event_id, reason
FROM findings;
