"""Whether the link model's counters agree with the packets that were sent and received."""

from testbed.studies.bench.claims import Claim, figures
from testbed.studies.bench.measure import Measurement, Setting

_CONSERVATION = "tests/fabric/test_conservation.py::test_"

CLAIMS = (
    Claim(
        "packets over a congested link, counted as received",
        "packets",
        100_000,
        "tests/fabric/test_link_model.py::test_every_one_of_many_packets_is_accounted_for",
    ),
    Claim(
        "packets over a faulty fabric, sent = delivered + trimmed + dropped",
        "packets",
        9_000,
        f"{_CONSERVATION}every_packet_of_a_faulty_and_overloaded_fabric_is_accounted_for",
    ),
    Claim(
        "packets of two flows that meet, marked on the shared link only",
        "packets",
        2_000,
        f"{_CONSERVATION}marks_appear_on_exactly_the_link_that_two_flows_overload",
    ),
)


def accounts(setting: Setting) -> list[Measurement]:
    """Count real packets over one link, over a whole fabric, and of two paced flows."""
    return figures(CLAIMS, setting)
