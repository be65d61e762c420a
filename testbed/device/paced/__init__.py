"""Programs on a simulated fabric that keeps step with the wall clock: no root, no namespaces."""
