"""What a host records: its tables, and who writes which rows."""

from testbed.host.recording.tables import Recorders, Tables

__all__ = ["Recorders", "Tables"]
