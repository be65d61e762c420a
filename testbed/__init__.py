"""MRC over SRv6 on an emulated multi-plane Clos fabric: build it, break it, measure it."""
