"""What is wrong with a file that is not YAML, in the words of the person who wrote it."""
