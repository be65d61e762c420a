"""What can go wrong: fault kinds, their targets, and what they do to a link."""
