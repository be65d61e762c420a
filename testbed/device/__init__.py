"""The MRC device of other programs: a NIC process in each host, a library in the program."""
