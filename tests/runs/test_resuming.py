"""What a campaign that was broken off by the machine says about how it is continued."""

import pytest

from testbed.model.errors import ClusterLostError, MachineError
from testbed.runs.making import naming_how_to_resume

HOW = "the same command with --into here makes the remaining runs"


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (ClusterLostError("no worker is left"), HOW),
        (MachineError("no space is left", "free some"), f"free some; then {HOW}"),
        (MachineError("memory ran out", ""), HOW),
    ],
    ids=["lost cluster", "shortage", "no remedy"],
)
def test_the_remedy_says_how_to_make_the_rest(error: MachineError, remedy: str) -> None:
    with pytest.raises(MachineError) as raised, naming_how_to_resume(HOW):
        raise error
    assert raised.value is error
    assert error.remedy == remedy


def test_the_remedy_of_a_lost_cluster_is_to_give_the_command_again() -> None:
    """Where nothing else is said: of the bench, say."""
    assert ClusterLostError("no worker is left").remedy == "give the command again"
