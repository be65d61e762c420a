"""Every collective on every rank, against numpy with the documented order and against gloo.

It runs in the Python that has torch, one process for each rank; nothing of the testbed is there.
"""

import functools
import itertools
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch_mrc

OPS = dist.ReduceOp
FLOATS = {torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16}
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def sample(rank: int, count: int, dtype: Any) -> Any:
    """Numbers of very different magnitudes, so that the order of addition shows."""
    rng = np.random.default_rng([rank, count])
    return (rng.standard_normal(count) * 10.0 ** rng.integers(-2, 3, count)).astype(dtype)


def tree_sum(tensors: Any) -> Any:
    """Pairs of neighbours, pairs of pairs and so on."""
    while len(tensors) > 1:
        pairs = itertools.zip_longest(tensors[::2], tensors[1::2])
        tensors = [a if b is None else a + b for a, b in pairs]
    return tensors[0]


def ring_sum(tensors: Any) -> Any:
    """Chunk i from rank i + 1 on, around the ring, to rank i."""
    n, count = len(tensors), len(tensors[0])
    total = np.empty_like(tensors[0])
    for i in range(n):
        part = slice(count * i // n, count * (i + 1) // n)
        total[part] = functools.reduce(np.add, [tensors[(i + 1 + j) % n][part] for j in range(n)])
    return total


def same(found: Any, expected: Any) -> bool:
    """Whether bits are equal."""
    mine = np.array(found.tolist(), dtype=expected.dtype)
    return bool(mine.tobytes() == expected.tobytes())


def check_floats(rank: int, size: int, group: Any = None) -> None:
    """Sums of floats are those of numpy in the documented order, to the bit."""
    pending = []
    for dtype, kind in FLOATS.items():
        for count in (0, 1, 7, 9000, 70_001):
            tensors = [sample(r, count, kind) for r in range(size)]
            mine = torch.tensor(tensors[rank].tolist(), dtype=dtype)
            small = count * np.dtype(kind).itemsize < torch_mrc.TREE_BYTES
            expected = (tree_sum if small else ring_sum)(tensors)
            work = dist.all_reduce(mine, group=group, async_op=True)
            pending.append((work, mine, expected))
    for work, mine, expected in pending:
        work.wait()
        assert same(mine, expected), (mine.dtype, len(mine))
    mean = torch.tensor([float(rank)])
    dist.all_reduce(mean, OPS.AVG, group=group)
    assert mean.item() == (size - 1) / 2


def check_against_gloo(rank: int, gloo: Any) -> None:
    """Integers, and bfloat16, bool and complex numbers whose sums are exact."""
    generator = torch.Generator().manual_seed(rank)
    cases = [
        (dtype, op)
        for dtype in INTEGERS
        for op in (OPS.SUM, OPS.PRODUCT, OPS.MIN, OPS.MAX, OPS.BAND, OPS.BOR, OPS.BXOR)
    ]
    cases += [(dtype, op) for dtype in FLOATS for op in (OPS.MIN, OPS.MAX)]
    pending = []
    for dtype, op in cases:
        for count in (1, 300):
            mine = torch.randint(0, 100, (count,), generator=generator).to(dtype)
            other = mine.clone()
            work = dist.all_reduce(mine, op, async_op=True)
            if dtype == torch.int16:  # which gloo lacks
                other = other.to(torch.int32)
            dist.all_reduce(other, op, group=gloo)
            pending.append((work, mine, other.to(dtype)))
    for work, mine, other in pending:
        work.wait()
        assert torch.equal(mine, other), mine.dtype
    dist.all_reduce(other, group=gloo, async_op=True).wait(timeout=timedelta(minutes=5))
    for dtype in (torch.bfloat16, torch.complex64, torch.complex128):
        mine = torch.full((5,), rank).to(dtype)
        dist.all_reduce(mine)
        assert mine.tolist() == [sum(range(dist.get_world_size()))] * 5
    any_true, all_true = torch.tensor([rank == 1]), torch.tensor([rank != 1])
    dist.all_reduce(any_true, OPS.MAX)
    dist.all_reduce(all_true, OPS.BAND)
    assert any_true.item()
    assert not all_true.item()


def check_movement(rank: int, size: int, count: int) -> None:
    """Each other collective, with a root that is not rank 0."""
    root = size - 1
    mine = torch.arange(count) + 1000 * rank
    everything = [torch.arange(count) + 1000 * r for r in range(size)]
    total = sum(everything)

    tensor = mine.clone()
    dist.reduce(tensor, root)
    assert torch.equal(tensor, total if rank == root else mine)
    tensor = mine.clone()
    dist.broadcast(tensor, root)
    assert torch.equal(tensor, everything[root])
    out = [torch.empty(count, dtype=torch.int64) for _ in range(size)]
    dist.all_gather(out, mine)
    assert all(map(torch.equal, out, everything))
    into = getattr(dist, "all_gather_single", dist.all_gather_into_tensor)
    whole = torch.empty(size * count, dtype=torch.int64)
    into(whole, mine)
    assert torch.equal(whole, torch.cat(everything))
    out = torch.empty(count, dtype=torch.int64)
    dist.reduce_scatter(out, [mine * (r + 1) for r in range(size)])
    assert torch.equal(out, total * (rank + 1))
    scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
    scatter(out, torch.cat([mine * (r + 2) for r in range(size)]))
    assert torch.equal(out, total * (rank + 2))
    out = [torch.empty(count, dtype=torch.int64) for _ in range(size)]
    dist.gather(mine, out if rank == root else None, dst=root)
    assert rank != root or all(map(torch.equal, out, everything))
    out = torch.empty(count, dtype=torch.int64)
    dist.scatter(out, everything if rank == root else None, src=root)
    assert torch.equal(out, mine)
    out = [torch.empty(count, dtype=torch.int64) for _ in range(size)]
    dist.all_to_all(out, [mine + 10 * r for r in range(size)])
    assert all(torch.equal(out[r], everything[r] + 10 * rank) for r in range(size))


def check_uneven(rank: int, size: int) -> None:
    """all_to_all_single with rows and parts of different sizes; none for some."""
    sizes = [[(sender + receiver) % 3 for receiver in range(size)] for sender in range(size)]
    parts = [torch.full((sizes[rank][r], 4), 100 * rank + r) for r in range(size)]
    into = [sizes[r][rank] for r in range(size)]
    out = torch.empty(sum(into), 4, dtype=torch.int64)
    dist.all_to_all_single(out, torch.cat(parts), into, sizes[rank])
    rows = [[100 * r + rank] * 4 for r in range(size) for _ in range(sizes[r][rank])]
    assert out.tolist() == rows


def check_transfers(rank: int, size: int) -> None:
    """Around the ring in both directions, recv before send; tags; more than all slots."""
    following, previous = (rank + 1) % size, (rank - 1) % size
    for count in (0, 1, 400_000):
        got = [torch.empty(count) for _ in range(3)]
        works = [
            dist.irecv(got[0], previous, tag=2),
            dist.irecv(got[1], previous, tag=1),
            dist.irecv(got[2], following),
            dist.isend(torch.full((count,), rank + 0.1), following, tag=1),
            dist.isend(torch.full((count,), rank + 0.2), following, tag=2),
            dist.isend(torch.full((count,), rank + 0.3), previous),
        ]
        for work in works:
            work.wait()
        senders = (previous + 0.2, previous + 0.1, following + 0.3)
        for tensor, value in zip(got, senders, strict=True):
            assert torch.equal(tensor, torch.full((count,), value))
    tensor = torch.zeros(3)
    if rank == 0:
        work = dist.irecv(tensor, 1)
        try:
            work.wait(timeout=timedelta(milliseconds=1))
        except RuntimeError as error:
            assert "within 0.001 s" in str(error)  # noqa: PT017 - there is no pytest here
        else:
            raise AssertionError("nothing was sent yet")
    dist.barrier()
    if rank == 0:
        work.wait(timeout=timedelta(minutes=5))
        assert tensor.tolist() == [1, 1, 1]
    elif rank == 1:
        dist.send(torch.ones(3), 0)


def check_tensors(rank: int, size: int) -> None:
    """Views that are not contiguous, a scalar, a parameter, inference mode, several tensors."""
    matrix = torch.zeros(4, 6)
    column = matrix[:, 1]
    column += rank
    dist.all_reduce(column)
    total = sum(range(size))
    assert matrix.sum() == 4 * total
    scalar = torch.tensor(rank)
    dist.all_reduce(scalar)
    assert scalar.item() == total
    parameter = torch.nn.Parameter(torch.full((3,), float(rank)))
    dist.all_reduce(parameter.data)
    dist.broadcast(parameter, 1)
    assert parameter.tolist() == [total] * 3
    with torch.inference_mode():
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor)
        assert tensor.tolist() == [total] * 3
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": r} for r in range(size)]


def check_groups(rank: int, size: int) -> None:
    """Several groups at a time, and one whose size is no power of two."""
    halves = [dist.new_group([*range(h, size, 2)]) for h in range(2)]
    most = dist.new_group([*range(size - 1)])
    tensors = [torch.tensor([float(rank)]) for _ in range(3)]
    half = halves[rank % 2]
    works = [
        dist.all_reduce(t, group=g, async_op=True)
        for t, g in zip(tensors[:2], (None, half), strict=True)
    ]
    if rank < size - 1:
        check_floats(rank, size - 1, most)
    for work in works:
        work.wait()
    assert tensors[0].item() == sum(range(size))
    assert tensors[1].item() == sum(range(rank % 2, size, 2))
    for group in (half, *([most] if rank < size - 1 else [])):
        dist.destroy_process_group(group)
    alone = [dist.new_group([r]) for r in range(size)][rank]
    dist.all_reduce(tensors[2], group=alone)
    assert tensors[2].item() == rank


def main() -> None:
    dist.init_process_group("mrc")
    rank, size = dist.get_rank(), dist.get_world_size()
    gloo = dist.new_group(backend="gloo")
    check_floats(rank, size)
    check_against_gloo(rank, gloo)
    for count in (0, 1, 20_000):
        check_movement(rank, size, count)
    check_uneven(rank, size)
    check_transfers(rank, size)
    check_tensors(rank, size)
    check_groups(rank, size)
    dist.barrier()
    dist.destroy_process_group()
    print(f"rank {rank}: all equal")


main()
