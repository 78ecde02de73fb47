-- The object of a thin event is dated by Stripe's clock. What was fetched before has none, and counts by the time of ours:
-- to write it here would read the largest table.
ALTER TABLE event_payloads ADD COLUMN object_told_at INTEGER;   -- seconds: when Stripe answered; NULL: fetched before
