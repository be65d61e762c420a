"""Studies of a file: scenarios times cases times seeds, hypotheses, tables, figures."""
