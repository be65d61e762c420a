"""The MRC paper's experiments (arXiv 2605.04333), run again and set beside what it saw."""
