"""Train a small transformer on the text of a license, one rank on each host, over MRC.

It runs in a Python that has torch, as the scenario `torch-training` or in the hosts of `testbed
shell`: see docs/torch.md. It predicts the next character. Rank 0 prints the loss and the time of
each step, and at the end a checksum of the weights: it is the same whatever the fabric did
meanwhile.
"""

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

RANK_MB = 231
"""Memory of a rank, by far the most of it torch."""

TEXT = Path(__file__).parents[1] / "LICENSE"
"""It never changes, and so neither do losses and checksum."""

CONTEXT, WIDTH, HEADS, LAYERS = 64, 96, 4, 3


parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--steps", type=int, default=30, help="default: 30")
parser.add_argument("--batch", type=int, default=4, help="texts of a rank (default: 4)")
parser.add_argument("--backend", default="mrc", help="mrc (default) or gloo")
parser.add_argument("--check", type=int, metavar="N", help="only see whether N ranks could run")
options = parser.parse_args()


def require_memory(ranks: int) -> None:
    """End the program if the machine has no room for so many ranks more."""
    lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    (free_kb,) = (int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    if free_kb < ranks * RANK_MB * 1000:
        found = f"{RANK_MB} MB for each of {ranks} ranks, found {free_kb // 1000} MB"
        sys.exit(f"not enough memory: needs {found}. End other programs, or use fewer ranks")


require_memory(options.check or 1)
try:
    import torch
except ModuleNotFoundError:
    sys.exit(
        f"{sys.executable} has no torch: apt install python3-torch python3-numpy "
        "libopenblas0-pthread, or see docs/torch.md"
    )
if options.check:
    sys.exit()

import torch.distributed as dist  # noqa: E402 - there is none without torch
import torch_mrc  # noqa: E402, F401 - it registers the backend
from torch import nn  # noqa: E402


class Transformer(nn.Module):
    """Predicts the next character of a text; 350,000 parameters."""

    def __init__(self, characters: int) -> None:
        super().__init__()
        self.characters = nn.Embedding(characters, WIDTH)
        self.places = nn.Embedding(CONTEXT, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 4 * WIDTH, dropout=0, batch_first=True, norm_first=True
        )
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, characters)
        hidden = torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1)
        self.register_buffer("hidden", hidden, persistent=False)

    def forward(self, text: Any) -> Any:
        """Return what may come after each character of a batch: logits."""
        x = self.characters(text) + self.places.weight
        return self.out(self.layers(x, self.hidden))


def batches(size: int, rank: int) -> tuple[int, Iterator[tuple[Any, Any]]]:
    """How many characters there are, and this rank's pieces of text, each with its continuation."""
    text = TEXT.read_text(encoding="utf-8")
    characters = sorted(set(text))
    numbers = {character: i for i, character in enumerate(characters)}
    data = torch.tensor([numbers[character] for character in text])

    def pieces() -> Iterator[tuple[Any, Any]]:
        generator = torch.Generator().manual_seed(rank)
        while True:
            starts = torch.randint(len(data) - CONTEXT - 1, (size,), generator=generator)
            found = torch.stack([data[i : i + CONTEXT + 1] for i in starts.tolist()])
            yield found[:, :-1], found[:, 1:]

    return len(characters), pieces()


def checksum(model: nn.Module) -> str:
    """A number that any changed bit of the weights changes."""
    found = hashlib.sha256()
    for parameter in model.parameters():
        found.update(bytes(parameter.detach().contiguous().view(-1).view(torch.uint8).tolist()))
    return found.hexdigest()[:16]


def report(line: str) -> None:
    """Tell the testbed of a step: it shows them, and faults can wait for one (docs/programs.md)."""
    if "TESTBED_REPORTS" in os.environ:
        os.write(int(os.environ["TESTBED_REPORTS"]), f"{line}\n".encode())


class Shown:
    """Prints the mean loss of each step on rank 0, one step late: nobody waits for it."""

    def __init__(self, rank: int) -> None:
        """Print nothing yet."""
        self.rank = rank
        self.last: tuple[int, float, Any, Any] | None = None

    def step(self, number: int, seconds: float, loss: Any) -> None:
        """Print the step before this one."""
        self.flush()
        self.last = number, seconds, loss, dist.all_reduce(loss, async_op=True)

    def flush(self) -> None:
        """Print the last step."""
        if self.last is None:
            return
        number, seconds, loss, work = self.last
        work.wait()
        if self.rank == 0:
            mean = loss.item() / dist.get_world_size()
            print(f"step {number:3}  loss {mean:.6f}  {seconds:.3f} s", flush=True)


def main() -> None:
    """Train, as RANK of WORLD_SIZE."""
    torch.set_num_threads(1)  # all ranks share the machine
    dist.init_process_group(options.backend, timeout=timedelta(minutes=5))
    rank = dist.get_rank()
    characters, texts = batches(options.batch, rank)
    torch.manual_seed(0)
    model = nn.parallel.DistributedDataParallel(Transformer(characters))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    count = sum(parameter.numel() for parameter in model.parameters())
    if rank == 0:
        print(f"{count} parameters on {dist.get_world_size()} ranks, torch {torch.__version__}")
    shown = Shown(rank)
    for step in range(options.steps):
        start = time.monotonic()
        report(f"begin step {step} {4 * count}")
        text, following = next(texts)
        loss = nn.functional.cross_entropy(model(text).flatten(0, 1), following.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report(f"end step {step}")
        shown.step(step, time.monotonic() - start, loss.detach())
    shown.flush()
    if rank == 0:
        print("weights", checksum(model))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
