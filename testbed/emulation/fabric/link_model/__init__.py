"""Links as switch ports and wires in the kernel: rate, queues, ECN, trimming, faults, counters."""
