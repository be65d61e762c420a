"""Everything that consists of many runs: they are planned, made, kept and resumed by one engine."""
