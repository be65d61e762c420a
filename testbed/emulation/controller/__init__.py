"""The fault controller: a Ryu application that owns the timeline, in a process of its own.

    experiment --(start, stop)--------> controller --OpenFlow 1.3--> Open vSwitch, for wires
               <--(ready, fault, done)--           --LinkControl---> the link itself, for the rest

`plan` is what it is started with, `process` the process and the experiment's side of it. In the
process, `app` is the Ryu application, `player` plays the faults, `places` adds up what acts where,
and the `actuators` act. Only `_ryu` knows Ryu. `live` is the HTTP interface for faults by hand.
"""
