"""`python -m testbed.controller PLAN.json`: the controller process.

Standard input and output are the channel to the experiment, standard error is the log. Exit status
0: every fault took effect and, where it was due, healed. 1: one did not, or the controller failed.

    reads   {"start": t0_ns, "endpoints": {host: pid}}
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
import os
import sys
from pathlib import Path

from testbed.controller import _ryu
from testbed.controller.channel import Channel
from testbed.controller.plan import ControllerPlan
from testbed.fabric import requests
from testbed.fabric.link_control import LinkControl
from testbed.fabric.namespaces import go_first
from testbed.fabric.netlink import Netlink

APP = "testbed.controller.app"


def main() -> int:
    """Run the controller that the plan named on the command line describes."""
    (path,) = sys.argv[1:]
    plan = ControllerPlan.from_json(Path(path).read_bytes())
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(name)s %(message)s"
    )
    with contextlib.suppress(PermissionError):  # then the records tell how late faults were
        go_first()  # faults come when they are due, as the endpoints' packets do
    channel = Channel(os.dup(0), os.dup(1))
    os.dup2(2, 1)  # what a library prints is no message
    with Netlink("sandbox") as netlink:
        netlink.send([requests.set_link(requests.LOOPBACK, "lo", up=True)])
    links = LinkControl(plan.topology, _ryu.HubClock().sleep)
    app = _ryu.run(APP, plan.port, plan=plan, channel=channel, links=links)
    return int(app.status)


sys.exit(main())
