"""What ranks get that call different things, or what there is not; each in a group of its own."""

import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch_mrc  # noqa: F401 - it registers the backend


def refused(what: str, call: Callable[..., Any], *arguments: Any) -> None:
    """Print what a call raises."""
    start = time.monotonic()
    try:
        call(*arguments)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is printed
        seconds = time.monotonic() - start
        print(f"rank {dist.get_rank()} {what} {type(error).__name__}: {error} [{seconds:.1f} s]")
    else:
        print(f"rank {dist.get_rank()} {what}: no error")


def main() -> None:
    dist.init_process_group("mrc")
    rank, size = dist.get_rank(), dist.get_world_size()
    odd = rank == 2
    ones = torch.ones
    everybody = {
        "small": lambda g: dist.all_reduce(ones(11 if odd else 10), group=g),
        "large": lambda g: dist.all_reduce(ones(50_001 if odd else 50_000), group=g),
        "tree or ring": lambda g: dist.all_reduce(ones(50_000 if odd else 10), group=g),
        "type": lambda g: dist.all_reduce(
            ones(4, dtype=torch.int8 if odd else torch.uint8), group=g
        ),
        "broadcast": lambda g: dist.broadcast(ones(0 if odd else 1), 0, group=g),
        "root": lambda g: dist.broadcast(ones(3), 1 if odd else 0, group=g),
        "reduce": lambda g: dist.reduce(ones(5 if odd else 4), 0, group=g),
        "gather": lambda g: dist.gather(
            ones(5 if odd else 4), [ones(4)] * size if rank == 0 else None, group=g
        ),
        "scatter": lambda g: dist.scatter(
            ones(5 if odd else 4), [ones(4)] * size if rank == 0 else None, group=g
        ),
        "all_gather": lambda g: dist.all_gather(
            [ones(5 if odd else 4)] * size, ones(5 if odd else 4), group=g
        ),
        "all_to_all": lambda g: dist.all_to_all_single(
            ones(2 * size if odd else size), ones(2 * size if odd else size), group=g
        ),
        "call": lambda g: dist.barrier(group=g) if odd else dist.all_reduce(ones(3), group=g),
    }
    for what, call in everybody.items():
        group = dist.new_group([*range(size)])
        refused(what, call, group)
        refused(f"{what} again", dist.barrier, group)
    group = dist.new_group([0, 1])
    if rank < 2:
        transfer = dist.send if rank == 0 else dist.recv
        refused("transfer", transfer, ones(3 + rank), 1 - rank, group)
    refused("quantized", lambda: dist.broadcast(torch.empty(2, dtype=torch.qint8), 0))
    refused("sparse", lambda: dist.all_reduce(ones(2).to_sparse()))
    refused("reduction", lambda: dist.all_reduce(ones(2), dist.ReduceOp.BAND))
    lists = [[torch.empty(2) for _ in range(size)]]
    refused("operation", lambda: dist.all_gather_coalesced(lists, [ones(2)]))
    refused("no source", lambda: dist.recv(ones(2)))
    pair = dist.new_group([0, 1])
    group = dist.new_group([*range(size)])
    if odd:
        dist.destroy_process_group(group)
        group = None  # torch 1.13 leaves it to this
    else:
        refused("left", dist.barrier, group)
    dist.barrier()
    if odd:
        sys.exit("rank 2 ends here")
    refused("ended", dist.barrier)
    if rank == 0:
        refused("killed", dist.barrier, pair)
    elif rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


main()
