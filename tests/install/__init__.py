"""Tests of installed copies: they install from the package index."""
