"""A run as one stream of events, live or replayed, and the page that shows it."""
