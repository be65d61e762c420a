"""The HTTP interface by which people inject faults and command hosts while a run is under way."""
