"""The tables that an event stream is made of."""

TABLES = (
    "arrivals",
    "transmissions",
    "losses",
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
