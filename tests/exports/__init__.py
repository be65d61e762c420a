"""Tests of what `testbed topo --export` writes."""
