"""A missing ACK is asked for on other paths, and the paths that bring none are left."""

from testbed.mrc import NEVER, CompletionStatus

from .harness import MS, RKEY, VA, Network, PathModel, S, make_profile


def test_the_path_that_brings_no_ack_is_left_for_one_that_does() -> None:
    """Of six paths one lives for good; the ACK of what has arrived gets lost on the others."""
    dead = PathModel(40 * MS, dead=[(0, NEVER)])
    paths = {
        0: PathModel(40 * MS, dead=[(94 * MS, NEVER)]),
        1: PathModel(40 * MS, loss=0.3, dead=[(128 * MS, NEVER)]),
        8: dead,
        9: PathModel(40 * MS, dead=[(115 * MS, NEVER)], dead_direction=0),
        16: dead,
        17: PathModel(116 * MS),
    }
    network = Network(
        make_profile(2, 1, 2),
        seed=30843,
        paths=paths,
        cwnd=40 * 256,
        mtu=256,
        mpr=1,
        exponential_retries=12,
        timestamps=False,
    )
    network.qps[0].post_write(0, memoryview(b""), VA, RKEY)
    for wr_id, size in enumerate((712, 0)):
        network.qps[1].post_write(wr_id, memoryview(bytes(size)), VA, RKEY)
    network.run(30 * S, lambda: len(network.completions[1]) == 2)
    assert [completion.status for completion in network.completions[1]] == [
        CompletionStatus.SUCCESS
    ] * 2
