"""Two hosts and switches that hash EVs, or read fields of them: real packets, and their paths."""
