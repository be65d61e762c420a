"""WRITEs back to back: as many outstanding on every flow as asked for, always."""

from collections import Counter

from testbed.workloads.program import Post
from testbed.workloads.write_bw import WriteBw

SIZE, DEPTH = 1000, 3


def test_depth_writes_are_outstanding_on_every_flow() -> None:
    program = WriteBw((4, 9), SIZE, DEPTH)
    program.begin(0)
    posted = program.posts(0)
    assert Counter(posted) == {Post(4, SIZE): DEPTH, Post(9, SIZE): DEPTH}
    assert program.posts(1) == []
    program.completed(9, 2)
    assert program.posts(2) == [Post(9, SIZE)]
    assert program.posts(3) == []
