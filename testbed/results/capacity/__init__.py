"""What the fabric allows the flows of a run: paths, max-min fair shares, rates over time."""
