"""Loss recovery: what was sent, what is lost, and what is sent again when."""
