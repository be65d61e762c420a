/* SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0) */
/*
 * One direction of a link, shared by the kernel's programs and user space: a record of an array
 * map, at the ifindex of the sending port. All fields are u64, so that each is read and written
 * as a whole. testbed/emulation/fabric/link_model/link_model.py reads the layout from this file.
 *
 * There are three parts, each in cache lines of its own: the fields that user space writes, those
 * that the sending port's program writes (on any CPU), and those that the receiving port's program
 * writes (on one CPU).
 */
#ifndef LINKMODEL_H
#define LINKMODEL_H

#define NEVER (~0ULL) /* a threshold that no queue reaches */

/* A period of one rate: until since_ns the port could have served served_bytes. */
struct epoch {
	__u64 since_ns;     /* CLOCK_MONOTONIC */
	__u64 served_bytes;
	__u64 rate;         /* bytes/s; 0: the port is not set up, and every packet passes */
};

struct direction {
	/* --- written by user space ------------------------------------------------------------ */
	struct epoch epochs[2];
	__u64 epoch;              /* index of the present one; written last when the rate changes */

	__u64 limit_bytes;        /* capacity of a queue */
	__u64 trim_bytes;         /* backlog above which packets of a trimmable class are trimmed */
	__u64 ecn_min_bytes;      /* backlog above which packets are marked, with a probability that */
	__u64 ecn_max_bytes;      /* reaches 1 at this backlog; a step if both are equal */

	__u64 priority_classes;   /* bit n: DSCP n is served before all others */
	__u64 trimmable_classes;  /* bit n: DSCP n may be trimmed */
	__u64 trimmed_dscp;       /* new DSCP of a packet that is trimmed here */
	__u64 kept_bytes;         /* bytes that trimming keeps of a WRITE with TSETH, from the
				   * innermost IPv6 header on */
	__u64 seed;

	__u64 blackhole;          /* not 0: no packet arrives */
	__u64 loss_ppm;
	__u64 corrupt_ppm;        /* one bit behind the outer header is flipped */
	__u64 path_loss_ppm;      /* loss of packets whose outer flow label has ... */
	__u64 path_mask;          /* ... in these bits ... */
	__u64 path_value;         /* ... this value */
	__u64 delay_ns;           /* extra delay, by which receiving hosts hold packets longer */
	__u64 labels_paths;       /* not 0: a host's port, which writes the path into the flow label */

	/* --- written by the sending port: the queue ------------------------------------------- */
	__u64 finish;             /* last byte in the queue, on the scale of served_bytes */
	__u64 finish_priority;    /* the same for the priority queue alone */
	__u64 offered_packets;
	__u64 offered_bytes;
	__u64 marked_packets;
	__u64 trimmed_packets;
	__u64 trimmed_off_bytes;  /* bytes removed by trimming */
	__u64 full_packets;       /* dropped by a full queue */
	__u64 full_priority_packets;
	__u64 peak_bytes;         /* greatest backlog of both queues; user space may clear it */
	__u64 ecn_draws;
	__u64 _queue[5];

	/* --- written by the receiving port: the wire ------------------------------------------ */
	__u64 packets;            /* packets that arrived */
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
