"""The files of a run directory: their names, and the content of those that hold JSON.

Tables are declared in `testbed/results/records.py`, records of faults in
`testbed/model/faults/record.py`, the summary in `testbed/model/summary`.
"""
