/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * One direction of a link, as the kernel's programs and user space share it: a record of an array
 * map, at the ifindex of the sending port. All fields are u64, so that each is read and written
 * whole. testbed/fabric/link_model.py mirrors this layout and checks its size when it loads.
 *
 * Three parts, each in cache lines of its own: what user space writes, what the sending port's
 * program writes (on any CPU), what the receiving port's program writes (on one CPU).
 */
#ifndef LINKMODEL_H
#define LINKMODEL_H

#define NEVER (~0ULL) /* a threshold that no queue reaches */

/* A stretch of time of one rate: by since_ns the port could have served so many bytes. */
struct epoch {
	__u64 since_ns;     /* CLOCK_MONOTONIC */
	__u64 served_bytes;
	__u64 rate;         /* bytes/s; 0: the port is not set up, and everything passes */
};

struct direction {
	/* --- written by user space ------------------------------------------------------------ */
	struct epoch epochs[2];
	__u64 epoch;              /* which of the two holds; written last, to change the rate */

	__u64 limit_bytes;        /* what a queue holds at most */
	__u64 trim_bytes;         /* backlog from which a packet of a trimmable class is trimmed */
	__u64 ecn_min_bytes;      /* backlog from which packets are marked, with a probability that */
	__u64 ecn_max_bytes;      /* rises to 1 here; a step where both are the same */

	__u64 priority_classes;   /* bit n: DSCP n is served before all others */
	__u64 trimmable_classes;  /* bit n: DSCP n may be trimmed */
	__u64 trimmed_dscp;       /* DSCP of a packet that was trimmed here */
	__u64 kept_bytes;         /* what trimming keeps, from the innermost IPv6 header on */
	__u64 seed;

	__u64 blackhole;          /* not 0: nothing arrives */
	__u64 loss_ppm;
	__u64 corrupt_ppm;        /* one bit behind the outer header is flipped */
	__u64 path_loss_ppm;      /* of the packets whose outer flow label has ... */
	__u64 path_mask;          /* ... in these bits ... */
	__u64 path_value;         /* ... this value */
	__u64 delay_ns;           /* not done here: receiving hosts hold packets so much longer */
	__u64 labels_paths;       /* not 0: a host's port, which writes the path into the flow label */

	/* --- written by the sending port: the queue ------------------------------------------- */
	__u64 finish;             /* byte that the port serves last, counted as served_bytes is */
	__u64 finish_priority;    /* the same, if it had the priority queue only */
	__u64 offered_packets;
	__u64 offered_bytes;
	__u64 marked_packets;
	__u64 trimmed_packets;
	__u64 trimmed_off_bytes;  /* what trimming took away */
	__u64 full_packets;       /* dropped, the queue being full */
	__u64 full_priority_packets;
	__u64 peak_bytes;         /* greatest backlog, both queues together; user space may clear it */
	__u64 ecn_draws;
	__u64 _queue[5];

	/* --- written by the receiving port: the wire ------------------------------------------ */
	__u64 packets;            /* what arrived */
	__u64 bytes;
	__u64 lost_packets;       /* dropped by loss_ppm */
	__u64 path_lost_packets;  /* dropped by path_loss_ppm */
	__u64 blackholed_packets;
	__u64 corrupted_packets;
	__u64 loss_draws;
	__u64 path_draws;
	__u64 corrupt_draws;
	__u64 _wire[7];
};

#endif
