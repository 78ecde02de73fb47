-- The newest events come first: on the page, in `events list`, and in what is counted of the last day.
CREATE INDEX events_received ON events (received_at);
