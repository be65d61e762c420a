"""What a run's results look like: figures, HTML reports, JUnit."""
