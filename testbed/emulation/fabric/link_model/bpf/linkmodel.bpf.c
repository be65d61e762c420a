// SPDX-License-Identifier: (GPL-2.0-only OR Apache-2.0)
/*
 * One direction of a link, as a switch port and a wire.
 *
 *     port (tc egress of the sender)           HTB            wire (tc ingress of the receiver)
 *     fluid queue: mark, trim or drop  -->  paces bytes  -->  blackhole, loss, corruption
 *
 * A fluid queue decides about each packet. It drains at exactly the port's rate, however late
 * the kernel runs, so that marks and trims depend on the traffic and not on the machine. HTB paces
 * the real bytes behind it, in a queue too deep to drop, strictly by class. Faults act on the wire,
 * behind the queue: a lost packet has used its share of the link, and packets in the queue when a
 * blackhole begins are swallowed as they leave.
 *
 * The queue is two numbers. `served` is how many bytes the port could have sent since it began: its
 * rate times the time, in epochs of one rate each. `finish` is the count at which the last byte that
 * was accepted will have left; a packet adds its length to whichever of both is greater. So the
 * backlog is `finish - served`, and it shrinks with time although nothing runs. The priority class
 * has a `finish` of its own, and its bytes are part of the other one's too, so that the others wait
 * for them, as under HTB behind it. CPUs change a `finish` by compare and swap; there are no locks.
 *
 * One pair of programs serves all links: the interface's index, which is unique in the fabric,
 * selects the record. The two ports of a link have the indexes 2n and 2n + 1.
 */
#include <linux/types.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "linkmodel.h"

#define PRIORITY_LEAF 0x10010 /* HTB's classes: testbed/emulation/fabric/link_model/shaping.py */
#define ORDINARY_LEAF 0x10020

#define OUTER ETH_HLEN
#define IPV6_BYTES 40
#define UDP_BYTES 8
#define PAYLOAD_LENGTH 4 /* in an IPv6 header */
#define NEXT_HEADER 6
#define UDP_LENGTH 4     /* in a UDP header; the checksum follows it */

/* testbed/mrc/wire/headers.py */
#define BTH_FLAGS 8 /* in a BTH: a byte of flags */
#define BTH_TS 0x10 /* of these: a TSETH follows the METH */
#define TSETH_BYTES 4

#define ECN_MASK 0x03
#define ECN_CE 0x03
#define DSCP_MASK 0xfc

#define ND_FIRST 133 /* router solicitation, RFC 4861 */
#define ND_LAST 137  /* redirect */

/* uSIDs and EVs: testbed/model/fabric/addressing.py */
#define FIRST_USID 28  /* in an IPv6 header: behind the destination's block */
#define DT6_USID 0xf006
#define PLANE_SHIFT 9
#define INDEX_MASK 0x1ff
#define EV_PLANE_MASK 0x7
#define EV_T1_SHIFT 3

#define NS_PER_S 1000000000ULL
#define PPM 1000000ULL
#define TRIES 16

/* Random streams: one for each kind of event, so that one does not shift the pattern of another. */
#define STREAM_ECN 0x1d8e4e27c47d124fULL
#define STREAM_LOSS 0xeb44accab455d165ULL
#define STREAM_PATH 0x9c6e6877736c46e3ULL
#define STREAM_CORRUPT 0xd1b54a32d192ed03ULL

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1); /* set before loading, by the number of interfaces */
	__type(key, __u32);
	__type(value, struct direction);
} directions SEC(".maps");

struct packet {
	__u32 inner; /* offset of the inner IPv6 header, 0 if there is none */
	__u32 label;
	__u8 dscp;
	__u8 ecn;
	__u8 protocol; /* next header of the innermost IPv6 header */
};

static __always_inline void add(__u64 *counter, __u64 n)
{
	__sync_fetch_and_add(counter, n);
}

/* 32 random bits: the next draw of a stream (splitmix64). A seed repeats them. */
static __always_inline __u32 draw(__u64 seed, __u64 stream, __u64 *draws)
{
	__u64 z = (seed ^ stream) + (__sync_fetch_and_add(draws, 1) + 1) * 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return (z ^ (z >> 31)) >> 32;
}

static __always_inline int happens(__u64 ppm, __u64 seed, __u64 stream, __u64 *draws)
{
	return ppm && (draw(seed, stream, draws) * PPM >> 32) < ppm;
}

/* Returns 0 for packets that the model does not touch: not IPv6, or neighbour discovery. */
static __always_inline int parse(struct __sk_buff *skb, struct packet *p)
{
	__be32 start[2];
	__u32 word;
	__u8 type;

	if (skb->protocol != bpf_htons(ETH_P_IPV6))
		return 0;
	if (bpf_skb_load_bytes(skb, OUTER, start, sizeof(start)))
		return 0;
	word = bpf_ntohl(start[0]);
	p->label = word & 0xfffff;
	p->dscp = word >> 22 & 0x3f;
	p->ecn = word >> 20 & ECN_MASK;
	p->protocol = bpf_ntohl(start[1]) >> 8 & 0xff;
	p->inner = 0;
	if (p->protocol == IPPROTO_ICMPV6) {
		if (bpf_skb_load_bytes(skb, OUTER + IPV6_BYTES, &type, 1))
			return 0;
		return type < ND_FIRST || type > ND_LAST;
	}
	if (p->protocol == IPPROTO_IPV6) {
		if (!bpf_skb_load_bytes(skb, OUTER + IPV6_BYTES + NEXT_HEADER, &p->protocol, 1))
			p->inner = OUTER + IPV6_BYTES;
	}
	return 1;
}

/* Replace bits of the traffic class of the IPv6 header at an offset; no checksum covers it. */
static __always_inline void set_class(struct __sk_buff *skb, __u32 at, __u8 mask, __u8 bits)
{
	__be16 start;
	__u16 word;

	if (bpf_skb_load_bytes(skb, at, &start, 2))
		return;
	word = bpf_ntohs(start);
	word = (word & ~((__u16)mask << 4)) | (__u16)bits << 4;
	start = bpf_htons(word);
	bpf_skb_store_bytes(skb, at, &start, 2, BPF_F_RECOMPUTE_CSUM);
}

static __always_inline void set_class_of_both(struct __sk_buff *skb, struct packet *p, __u8 mask,
					      __u8 bits)
{
	set_class(skb, OUTER, mask, bits);
	if (p->inner) /* End.DT6 copies neither ECN nor DSCP to the inner header */
		set_class(skb, p->inner, mask, bits);
}

/*
 * Ordinary traffic: write the path, as the upper half of an EV has it, into the outer flow label,
 * as MRC does and the kernel cannot. The destination's uSIDs have the path, followed by End.DT6.
 */
static __always_inline void label_path(struct __sk_buff *skb, struct packet *p)
{
	__be16 usids[5];
	__be32 start;
	__u32 label;

	if (bpf_skb_load_bytes(skb, OUTER + FIRST_USID, usids, sizeof(usids)))
		return;
	if (usids[4] == bpf_htons(DT6_USID)) /* T0, T1, T0, NIC */
		label = (bpf_ntohs(usids[1]) >> PLANE_SHIFT & EV_PLANE_MASK) |
			(bpf_ntohs(usids[1]) & INDEX_MASK) << EV_T1_SHIFT;
	else if (usids[2] == bpf_htons(DT6_USID)) /* T0, NIC */
		label = bpf_ntohs(usids[0]) >> PLANE_SHIFT & EV_PLANE_MASK;
	else
		return;
	if (bpf_skb_load_bytes(skb, OUTER, &start, sizeof(start)))
		return;
	start = (start & bpf_htonl(~0xfffffU)) | bpf_htonl(label);
	bpf_skb_store_bytes(skb, OUTER, &start, sizeof(start), BPF_F_RECOMPUTE_CSUM);
	p->label = label;
}

/* --- the queue ------------------------------------------------------------------------------- */

/* Bytes that the port could have served up to now. */
static __always_inline __u64 served_by(struct direction *d, __u64 now)
{
	struct epoch *e = &d->epochs[d->epoch & 1];
	__u64 since = e->since_ns, elapsed = now > since ? now - since : 0;

	return e->served_bytes + elapsed / NS_PER_S * e->rate +
	       elapsed % NS_PER_S * e->rate / NS_PER_S;
}

static __always_inline __u64 backlog(__u64 finish, __u64 served)
{
	return finish > served ? finish - served : 0;
}

/* Add a packet to the queue that ends at *finish. Returns the backlog before it. */
static __always_inline __u64 append(__u64 *finish, __u64 served, __u64 len)
{
	__u64 old, base;
	int i;

	for (i = 0; i < TRIES; i++) {
		old = *(volatile __u64 *)finish;
		base = old > served ? old : served;
		if (__sync_val_compare_and_swap(finish, old, base + len) == old)
			return base - served;
	}
	old = __sync_fetch_and_add(finish, len); /* other CPUs add packets too: the queue is not empty */
	return backlog(old, served);
}

/*
 * Bytes before a packet in its own queue: the priority queue does not see the other one. If two
 * CPUs ask at the same time, both may add a packet: a limit is exceeded by at most one packet for each
 * CPU.
 */
static __always_inline __u64 ahead(struct direction *d, __u64 served, int priority)
{
	__u64 high = backlog(*(volatile __u64 *)&d->finish_priority, served), all;

	if (priority)
		return high;
	all = backlog(*(volatile __u64 *)&d->finish, served);
	return all > high ? all - high : 0;
}

/* On any CPU: a smaller backlog never replaces a greater one, whichever CPU comes last. */
static __always_inline void note_peak(struct direction *d, __u64 backlog)
{
	__u64 peak = *(volatile __u64 *)&d->peak_bytes;

	for (int try = 0; try < TRIES && backlog > peak; try++)
		peak = __sync_val_compare_and_swap(&d->peak_bytes, peak, backlog);
}

static __always_inline void enqueue(struct direction *d, __u64 served, __u64 len, int priority)
{
	if (priority)
		append(&d->finish_priority, served, len);
	note_peak(d, append(&d->finish, served, len) + len);
}

static __always_inline int marks(struct direction *d, __u64 queued)
{
	__u64 least = d->ecn_min_bytes, most = d->ecn_max_bytes;

	if (queued < least)
		return 0;
	if (queued >= most)
		return 1;
	return (draw(d->seed, STREAM_ECN, &d->ecn_draws) * (most - least) >> 32) < queued - least;
}

/*
 * Length of a packet after trimming; 0 if trimming would save no more than what it keeps: a
 * reliability probe is as short as what is left of a WRITE. A WRITE without TSETH keeps less.
 */
static __always_inline __u32 trimmed_length(struct __sk_buff *skb, struct direction *d,
					    struct packet *p, __u32 len)
{
	__u32 kept = d->kept_bytes, at = p->inner ? p->inner : OUTER, left = at + kept;
	__u8 flags;

	if (p->protocol != IPPROTO_UDP || kept < IPV6_BYTES + UDP_BYTES + TSETH_BYTES)
		return 0;
	if (left + kept >= len)
		return 0;
	if (bpf_skb_load_bytes(skb, at + IPV6_BYTES + UDP_BYTES + BTH_FLAGS, &flags, 1))
		return 0;
	return flags & BTH_TS ? left : left - TSETH_BYTES;
}

/*
 * Cut a UDP packet behind the headers that are kept, and make the rest a valid packet: lengths of
 * both IPv6 headers and of UDP, no UDP checksum (RFC 6935), the trimmed class. Returns 0 if done.
 */
static __always_inline int trim(struct __sk_buff *skb, struct direction *d, struct packet *p,
				__u32 left)
{
	__u32 at = p->inner ? p->inner : OUTER, len = skb->len;
	__be16 udp[2];

	if (bpf_skb_change_tail(skb, left, 0))
		return -1;
	udp[0] = bpf_htons(left - at - IPV6_BYTES);
	udp[1] = 0;
	bpf_skb_store_bytes(skb, at + PAYLOAD_LENGTH, udp, 2, 0);
	bpf_skb_store_bytes(skb, at + IPV6_BYTES + UDP_LENGTH, udp, 4, 0);
	if (p->inner) {
		udp[0] = bpf_htons(left - OUTER - IPV6_BYTES);
		bpf_skb_store_bytes(skb, OUTER + PAYLOAD_LENGTH, udp, 2, 0);
	}
	set_class_of_both(skb, p, DSCP_MASK, d->trimmed_dscp << 2);
	add(&d->trimmed_packets, 1);
	add(&d->trimmed_off_bytes, len - left);
	return 0;
}

/* tc egress of the sending port: mark, trim or drop a packet, and select its queue. */
SEC("tc")
int port(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex, len = skb->len;
	struct direction *d = bpf_map_lookup_elem(&directions, &key);
	__u64 served, queued;
	__u32 left;
	struct packet p;
	int priority;

	if (!d || !d->epochs[0].rate)
		return TC_ACT_OK;
	if (!parse(skb, &p)) {
		skb->priority = PRIORITY_LEAF;
		return TC_ACT_OK;
	}
	if (d->labels_paths && p.inner)
		label_path(skb, &p);
	add(&d->offered_packets, 1);
	add(&d->offered_bytes, len);
	served = served_by(d, bpf_ktime_get_ns());
	priority = d->priority_classes >> p.dscp & 1;
	queued = ahead(d, served, priority);

	/*
	 * Trimming first, as in UET switches: what would wait too long is cut to its headers, which
	 * travel in the priority class and overtake the queue, so that the receiver can ask again
	 * within a round trip. It is dropped only if even that queue is full.
	 */
	if ((d->trimmable_classes >> p.dscp & 1) && queued + len > d->trim_bytes &&
	    (left = trimmed_length(skb, d, &p, len))) {
		if (ahead(d, served, 1) + left > d->limit_bytes) {
			add(&d->full_priority_packets, 1);
			return TC_ACT_SHOT;
		}
		if (!trim(skb, d, &p, left)) {
			enqueue(d, served, left, 1);
			skb->priority = PRIORITY_LEAF;
			return TC_ACT_OK;
		}
	}
	if (queued + len > d->limit_bytes) {
		add(priority ? &d->full_priority_packets : &d->full_packets, 1);
		return TC_ACT_SHOT;
	}
	/* Marked on arrival, by the queue that it finds: what leaves later was marked earlier. */
	if (p.ecn && p.ecn != ECN_CE && marks(d, queued)) {
		set_class_of_both(skb, &p, ECN_MASK, ECN_CE);
		add(&d->marked_packets, 1);
	}
	enqueue(d, served, len, priority);
	skb->priority = priority ? PRIORITY_LEAF : ORDINARY_LEAF;
	return TC_ACT_OK;
}

/* --- the wire -------------------------------------------------------------------------------- */

static __always_inline void corrupt(struct __sk_buff *skb, struct direction *d)
{
	__u32 first = OUTER + IPV6_BYTES, r, at;
	__u8 byte;

	if (skb->len <= first)
		return;
	r = draw(d->seed, ~STREAM_CORRUPT, &d->corrupt_draws);
	at = first + (r >> 3) % (skb->len - first);
	if (bpf_skb_load_bytes(skb, at, &byte, 1))
		return;
	byte ^= 1 << (r & 7);
	if (!bpf_skb_store_bytes(skb, at, &byte, 1, 0))
		add(&d->corrupted_packets, 1);
}

/* tc ingress of the receiving port: what happens to a packet between the ports. */
SEC("tc")
int wire(struct __sk_buff *skb)
{
	__u32 key = skb->ifindex ^ 1;
	struct direction *d = bpf_map_lookup_elem(&directions, &key);
	struct packet p;

	if (!d || !d->epochs[0].rate)
		return TC_ACT_OK;
	if (d->blackhole) {
		add(&d->blackholed_packets, 1);
		return TC_ACT_SHOT;
	}
	if (!parse(skb, &p))
		return TC_ACT_OK;
	if (happens(d->loss_ppm, d->seed, STREAM_LOSS, &d->loss_draws)) {
		add(&d->lost_packets, 1);
		return TC_ACT_SHOT;
	}
	if ((p.label & d->path_mask) == d->path_value &&
	    happens(d->path_loss_ppm, d->seed, STREAM_PATH, &d->path_draws)) {
		add(&d->path_lost_packets, 1);
		return TC_ACT_SHOT;
	}
	if (happens(d->corrupt_ppm, d->seed, STREAM_CORRUPT, &d->corrupt_draws))
		corrupt(skb, d);
	add(&d->packets, 1);
	add(&d->bytes, skb->len);
	return TC_ACT_OK;
}

char _license[] SEC("license") = "GPL"; /* of the two above, the one that the kernel takes */
