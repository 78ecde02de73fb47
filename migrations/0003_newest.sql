-- The newest events come first: on the page, in `events list`, and in what is counted of the last day.
CREATE INDEX events_received ON events (received_at);
-- What Stripe delivered last, however much was imported or fetched since.
CREATE INDEX events_delivered ON events (received_at) WHERE source = 'webhook';
