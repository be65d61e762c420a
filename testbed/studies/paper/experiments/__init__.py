"""The paper's experiments, one module for each group of figures."""

import testbed.results.plotting  # noqa: F401 - before Matplotlib
