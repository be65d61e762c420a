"""The kernel's own TCP and Multipath TCP as a transport, on the fabric's paths.

segment   the headers of a TCP segment; the transmissions of a subflow
origins   the plane by which each byte of a Multipath TCP connection arrived
frames    messages in a byte stream, as in iWARP's direct data placement
tun       a TUN device for each plane, through which the kernel's packets pass
stack     makes connections from a plan; takes packets between the TUN devices and the fabric
qp        a connection with the methods of a queue pair
info      the kernel's window, flight and RTT of a connection
available whether this kernel supports a transport

The kernel's packets cross the fabric as MRC's do. This process puts the carrier's outer header in
front of them, sends them through its raw socket, and holds back arrivals for the propagation delay.
So delay, queues, marks and faults are the same for all transports.
"""
