"""Hypothesis without deadlines: on a busy machine they only measure the neighbours."""

from hypothesis import settings

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")
