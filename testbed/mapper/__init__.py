"""The Clustermapper: finds faulty links and switches by probing every link.

After the MRC paper's Clustermapper (arXiv 2605.04333, section 3): agents on the hosts probe every
NIC-T0 and T0-T1 link at a fixed rate, source-routed by uSIDs from the host to a switch and back.
This package is sans-IO, and the simulator drives it; the sockets are in `agents`.
"""
