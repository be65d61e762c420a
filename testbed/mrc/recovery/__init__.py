"""Loss recovery: what was sent, what is lost, what is sent again and when."""
