"""Studies: their files, runs, answers, tables, figures and archives."""
