"""Tests of testbed.model."""
