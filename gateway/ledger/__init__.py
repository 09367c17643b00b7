"""The durable record: append-only streams of events, the states they fold to, and views that can be rebuilt from them."""
