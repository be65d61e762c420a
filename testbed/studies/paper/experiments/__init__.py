"""The paper's experiments, one module for each group of figures."""
