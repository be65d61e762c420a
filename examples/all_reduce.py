r"""How long all_reduce takes with the backend mrc: for a run in which nothing else is measured.

    sudo .venv/bin/testbed run torch-training --set timeline=[] --set workload.check=[] \\
        --set expect={} --set 'workload.command=[/usr/bin/python3, all_reduce.py, 1048576]'

Each all_reduce of that many bytes is an operation of the run.
"""

import os
import sys

import torch
import torch.distributed as dist
import torch_mrc  # noqa: F401 - it registers the backend

TIMES = 12


def main() -> None:
    """Reduce the same tensor again and again, as RANK of WORLD_SIZE."""
    size, reports = int(sys.argv[1]), int(os.environ["TESTBED_REPORTS"])
    torch.set_num_threads(1)  # all ranks share the machine
    dist.init_process_group("mrc")
    numbers = torch.ones(size // 4)
    for i in range(TIMES):
        os.write(reports, f"begin all_reduce {i} {size}\n".encode())
        dist.all_reduce(numbers)
        os.write(reports, f"end all_reduce {i}\n".encode())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
