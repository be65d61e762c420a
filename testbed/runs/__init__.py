"""Runs: one that is made here, many that are made by processes of their own, and all found again.

making     one run in this process: `make`
process    one run in a process of its own, as a program asks for it
many       many runs, and those again that cannot be trusted: `many`
job        a run that is to be made, what identifies it, what became of it
store      the runs that are there
series     repeats and sweeps: planned, begun or continued, found by their cases
fitting    what the machines carry: the dilation for `auto`, and whether a load is too much
room       whether there is memory for a run
places     where runs are made: here, or by the workers of a cluster
cluster/   these workers
python     what `import testbed` offers, with scenarios and result
"""
