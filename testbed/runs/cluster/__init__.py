"""Makes the runs of a campaign on many machines, by Dask.distributed (the extra `cluster`)."""
