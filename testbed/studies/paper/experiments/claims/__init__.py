"""What the paper says in its text only, one module for each claim."""
