"""Finding out where the fabric is ill: probes over every link, and what their losses tell together.

After the MRC paper's Clustermapper (arXiv 2605.04333, section 3): agents on the hosts probe every
NIC-T0 and T0-T1 link at a fixed rate, source-routed by uSIDs from the host to a switch and back.
"""
