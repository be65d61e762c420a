"""Labs: tasks with predictions, runs, checks, hints and grades."""
