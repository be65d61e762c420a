"""Tests of labs: tasks, checks, hints, grades."""
