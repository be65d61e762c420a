"""The kernel's own TCP and Multipath TCP as a transport, on the fabric's paths.

segment   what a TCP segment's header says; which transmissions a subflow has made
origins   which plane brought which bytes of a Multipath TCP connection
frames    messages in a byte stream, as iWARP's direct data placement has them
tun       a TUN device for each plane: where the kernel hands its packets over
opening   makes the ends of a connection from a plan
stack     takes packets between the TUN devices and the fabric
qp        a connection with the methods of a queue pair
info      what the kernel tells of it: window, flight, RTT
available what this kernel has of it

The kernel's packets cross the fabric as MRC's do: this process puts the carrier's outer header in
front of them, sends them through its raw socket, and holds back what arrives for as long as the
wire would have taken. So propagation delay, queues, marks and faults are the same for all.
"""
