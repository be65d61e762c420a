"""What a fabric and an experiment are: frozen values, no I/O, no privileges."""
