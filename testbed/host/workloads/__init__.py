"""What the hosts send: messages and their content, and the programs that decide when to post."""
