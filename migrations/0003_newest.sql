-- The newest events come first: on the page, in `events list`, and in what is counted of the last day.
CREATE INDEX events_received ON events (received_at);
-- What Stripe delivered last, however much was imported or fetched since.
CREATE INDEX events_delivered ON events (received_at) WHERE source = 'webhook';
-- The audit rows of an event are looked up by the second in which it was processed, so that no event pays for an index by ids.
CREATE INDEX audit_log_at ON audit_log (at);
-- What became of an event besides runs is rare: dismissals, reopenings, dead letters.
CREATE INDEX audit_log_event ON audit_log (event_id) WHERE action >= 'event.' AND action < 'event/';
