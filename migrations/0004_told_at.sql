-- The object of a thin event is dated by Stripe's clock. What was fetched before keeps the time of ours.
ALTER TABLE event_payloads ADD COLUMN object_told_at INTEGER;   -- seconds: when Stripe answered; NULL without an object
UPDATE event_payloads SET object_told_at = object_at / 1000 WHERE object IS NOT NULL;
