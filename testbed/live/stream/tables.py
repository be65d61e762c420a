"""The tables that an event stream is made of."""

TABLES = (
    "arrivals",
    "transmissions",
    "losses",
    "round_trips",
    "ev_events",
    "qp",
    "completions",
    "links",
    "queues",
    "probes",
    "findings",
    "operator",
    "control",
)
"""Their names."""
