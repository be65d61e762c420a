"""The files of a fork, `forks/N` in the run directory: declared once for who writes and who reads.

`Forks` makes the directory with the fork's scenario and record; the process that simulates the fork
adds its progress, the records of a run, and last the difference.
"""

from pydantic import BaseModel, ConfigDict

FORK = "fork.json"
DIFFERENCE = "difference.json"
PROGRESS = "progress"
SCENARIO = "scenario.yaml"
LOG = "fork.log"


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True)


class ForkRecord(_Model):
    """The content of `fork.json`.

    Attributes:
        fork: its number.
        at_s: the moment of the change, in seconds from the start.
        change: what was changed, in words.
    """

    fork: int
    at_s: float = 0.0
    change: str = "unknown"


class ComparedPart(_Model):
    """What a part of both runs came to; each pair is (real, fork).

    Attributes:
        seconds: its length, emulated.
        goodput_bps: the mean over time, over all flows together; None if there was no step.
        lost: packets declared lost.
        retransmitted: packets sent again.
        detections_rtt: the first detection of each fault in base RTTs, by the fault's number.
    """

    seconds: float
    goodput_bps: tuple[float | None, float | None]
    lost: tuple[int, int]
    retransmitted: tuple[int, int]
    detections_rtt: tuple[dict[int, float], dict[int, float]]


class Difference(_Model):
    """The content of `difference.json`: both runs up to the moment of the change, and after it.

    Up to the moment both did the same. After it only the time that both have is compared.
    """

    before: ComparedPart
    after: ComparedPart
