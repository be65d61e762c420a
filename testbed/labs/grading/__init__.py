"""Submissions and their grades."""
