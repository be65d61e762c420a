"""What MRC is measured against: other transports, on the same fabric and workloads."""
