"""What this machine carries: measured before the first run, then known."""

from typing import TYPE_CHECKING

from testbed.cli.screen import progress_shown, say_warning
from testbed.model.errors import RunFailedError

if TYPE_CHECKING:
    from testbed.experiment.capacity import Capacity


def capacity_here() -> "Capacity | None":
    """What this machine carries, measured now if it never was; None if that broke off.

    Raises:
        MachineError: this machine cannot run the testbed.
    """
    from testbed.experiment.capacity import kept
    from testbed.fabric.capabilities import require

    known = kept()
    if known is not None:
        return known
    require()
    try:
        return measured()
    except RunFailedError as error:
        say_warning(f"what this machine carries is not known: {error}")
        return None


def measured() -> "Capacity":
    """Measure what this machine carries, and keep it."""
    from testbed.experiment.calibration import calibrate
    from testbed.experiment.capacity import keep

    with progress_shown() as progress:
        capacity = calibrate(lambda _, done: progress("measuring what this machine carries", done))
    keep(capacity)
    return capacity
