"""The fault controller: a Ryu application that owns the timeline, in a process of its own.

    experiment --(pipe: start, stop)--> controller --OpenFlow 1.3--> Open vSwitch, for wires
               <--(ready, fault, done)--           --LinkControl---> the link itself, for the rest

`plan` says what it is told, `process` is the experiment's side of it; what runs inside the
process is `app` with its `timeline`, `actuators`, `openflow` and `records`. Only `_ryu` knows Ryu.
"""

from testbed.controller.plan import ControllerPlan, choose_wires
from testbed.controller.process import ControllerProcess

__all__ = ["ControllerPlan", "ControllerProcess", "choose_wires"]
