"""What runs in the controller process: it obeys the experiment at the other end of its channel.

reads   {"built": true}    the fabric stands: get ready
        {"start": t0_ns, "endpoints": {host: pid}}
                           begin the timeline at this CLOCK_MONOTONIC time
        {"heal": true}     heal what was injected by hand, and inject no more
        {"stop": true}     the run is over; closing the pipe says the same
writes  {"listening": port}             with wires: point the switch here now
        {"ready": true, "datapath": id} wires are in place; id is null without wires
        {"fault": {...}}                a fault changed its state (see records.FaultRecord)
        {"ends": name}                  a fault kills this process at once: a host's, or ours
        {"healed": true}                nothing by hand is in force
        {"done": true, "failed": bool}  the timeline is over
"""

import contextlib
import logging
import sys

from testbed.controller import _ryu
from testbed.controller.plan import ControllerPlan
from testbed.fabric.link_model.link_control import LinkControl
from testbed.fabric.netlink import requests
from testbed.fabric.netlink.namespaces import NodeNamespaces
from testbed.fabric.netlink.socket import Netlink
from testbed.sandbox.attributes import raise_priority
from testbed.sandbox.channel import Channel

APP = "testbed.controller.app"


def run_controller(plan: ControllerPlan, channel: Channel) -> int:
    """Run the controller of a plan until the experiment ends it.

    Returns the exit status of its process. 0: every fault took effect and, where it was due,
    healed. 1: one did not, or the controller failed.
    """
    logging.basicConfig(
        stream=sys.stderr,
        level=logging.INFO,
        format="%(asctime)s %(name)s %(message)s",
        force=True,  # in a process forked from one that logs elsewhere
    )
    with contextlib.suppress(PermissionError):  # then the records tell how late faults were
        raise_priority()  # faults come when they are due, as the endpoints' packets do
    with Netlink("sandbox") as netlink:
        netlink.send([requests.set_link(requests.LOOPBACK, "lo", up=True)])
    with NodeNamespaces() as namespaces:
        links = LinkControl(plan.topology, namespaces, _ryu.HubClock().sleep)
        app = _ryu.run(APP, plan.port, plan=plan, channel=channel, links=links)
    return int(app.status)
