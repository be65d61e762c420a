"""write_bw and write_lat: perftest's tools, over the verbs."""
