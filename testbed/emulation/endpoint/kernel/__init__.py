"""The kernel's own TCP and Multipath TCP as a transport, on the fabric's paths.

origins   the plane by which each byte of a Multipath TCP connection arrived
stack     makes connections from a plan; takes packets between TUN devices and the fabric
qp        a connection with the methods of a queue pair

The kernel's packets cross the fabric as MRC's do. This process puts the carrier's outer header in
front of them, sends them through its raw socket, and holds back arrivals for the propagation delay.
So delay, queues, marks and faults are the same for all transports.
"""
