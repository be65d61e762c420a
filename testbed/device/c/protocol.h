/* What the library in a program and the NIC process of its host say to each other.
 *
 * The NIC listens on an abstract UNIX socket (SOCK_SEQPACKET) of its host's network namespace, so
 * that a program finds the NIC of the host that it runs in, and none elsewhere. On a connection each
 * `struct mrc_request` is answered by one `struct mrc_reply`, with descriptors where memory or events
 * are shared. Work requests and completions pass through memory (`struct mrc_ring`), payload from
 * process to process, or where the kernel forbids that through a thread (`struct mrc_copy`).
 *
 * testbed/device/protocol.py has the same for Python; a test compares the two.
 */
#ifndef MRC_PROTOCOL_H
#define MRC_PROTOCOL_H

#include <stdint.h>

#define MRC_VERSION 1
#define MRC_SOCKET "mrc-nic"
#define MRC_SOCKET_VARIABLE "MRC_NIC" /* another name: of a host that shares a network namespace */

#define MRC_MAX_SGE 16
#define MRC_MAX_INLINE 256
#define MRC_MAX_DEPTH 16384   /* work requests of a queue */
#define MRC_MAX_CQE 65536
#define MRC_MAX_MESSAGE (1u << 30)
#define MRC_MODIFY_MRC (1u << 31) /* in the mask of MODIFY_QP: with the rules of mrc.h */
#define MRC_MAX_HINTS 1024
#define MRC_DEFAULT_MPR 8 /* units of 128 PSNs */
#define MRC_DEFAULT_WIMM 64
#define MRC_DEFAULT_LINEAR 7
#define MRC_DEFAULT_EXPONENTIAL 7
#define MRC_ENTRIES_OFFSET 4096  /* where the entries of a ring's memory begin */

enum mrc_op {
    MRC_OPEN = 1,       /* replies: doorbell, pipe of asynchronous events; a socket for payload,
                         * if the NIC cannot read the word at `address`, which has `cookie` in it */
    MRC_ALLOC_PD,
    MRC_DEALLOC_PD,
    MRC_REG_MR,
    MRC_DEREG_MR,
    MRC_CREATE_CHANNEL, /* replies: pipe of completion events */
    MRC_DESTROY_CHANNEL,
    MRC_CREATE_CQ,      /* replies: memory of its ring */
    MRC_DESTROY_CQ,
    MRC_CREATE_QP,      /* replies: memory of its send ring, memory of its receive ring */
    MRC_MODIFY_QP,
    MRC_QUERY_QP,
    MRC_DESTROY_QP,
    MRC_REPORT,         /* what the program has sent so far */
    MRC_RESIZE_CQ,      /* replies: memory of its new ring */
    MRC_QUERY_PORTS,
    MRC_SET_MRC,        /* the struct mrc_qp_attr at `address` holds for a queue pair */
    MRC_CONTROL,        /* `handle` is an enum mrc_call; its structure is at `address` */
};

/* What a controller asks, by the functions of mrc_ctl.h: `cookie` has the number of the profile or
 * port, `mask` the mask. */
enum mrc_call {
    MRC_QUERY_CONTROL = 1,
    MRC_QUERY_PORT,
    MRC_MODIFY_PORT,
    MRC_MODIFY_FORMAT,
    MRC_QUERY_FORMAT,
    MRC_MODIFY_EVS,
    MRC_QUERY_EVS,
    MRC_MODIFY_CC,
    MRC_QUERY_CC,
    MRC_POLL_EV_EVENTS, /* `cookie`: the queue, `mask`: bytes of an event; `handle`: their number */
    MRC_SEND_PROBES,    /* `cookie`: the time to wait in ns, `mask`: their number; a new handle */
    MRC_TAKE_PROBES,    /* `cookie`: that handle; `state`: over, `handle`: the answers */
};

/* Fields that an operation has no use for are 0. */
struct mrc_request {
    uint32_t op;
    uint32_t handle;     /* the object; of a new one its protection domain */
    uint64_t cookie;     /* CREATE_CQ, CREATE_QP: comes back in events; OPEN, CONTROL */
    uint64_t address;    /* REG_MR, OPEN, SET_MRC, CONTROL: in the program */
    uint64_t length;
    uint64_t iova;       /* REG_MR: the same memory, as work requests name it */
    uint32_t access;     /* REG_MR, MODIFY_QP: enum ibv_access_flags */
    uint32_t channel;    /* CREATE_CQ: 0 for none */
    uint32_t depth;      /* CREATE_CQ, CREATE_QP: entries, a power of two */
    uint32_t recv_depth;
    uint32_t send_cq;
    uint32_t recv_cq;
    uint32_t signal_all;
    uint32_t mask;       /* MODIFY_QP: enum ibv_qp_attr_mask, what follows is as it says; CONTROL;
                          * CREATE_CQ: 1 for a queue of EV events */
    uint32_t state;      /* enum ibv_qp_state */
    uint32_t mtu;        /* bytes */
    uint32_t peer_qpn;
    uint32_t peer_psn;
    uint32_t first_psn;
    uint32_t retries;
    uint32_t timeout;
    uint32_t version;    /* OPEN */
    uint8_t peer[16];    /* the peer's GID: the inner IPv6 address of its NIC */
};

struct mrc_reply {
    int32_t error;       /* 0, or an errno */
    uint32_t handle;     /* of the object; REPORT: packets that the NIC has seen late */
    uint32_t key;        /* REG_MR: lkey and rkey; CREATE_QP: its number; QUERY_PORTS: enabled ones;
                          * REPORT: packets that have arrived */
    uint32_t state;      /* QUERY_QP: enum ibv_qp_state; QUERY_PORTS: bit n for plane n: usable */
    uint64_t guid;       /* OPEN */
    uint64_t rate;       /* OPEN: bits/s of all ports together, at full speed */
    uint64_t dilation;   /* REPORT: times 1000 */
    uint64_t sent_bytes; /* REPORT: of completed WRITEs */
    uint64_t time_ns;    /* REPORT: from the first post to the last completion, emulated */
    uint32_t mtu;        /* OPEN: bytes */
    uint32_t planes;     /* OPEN */
    uint8_t gid[16];     /* OPEN */
};

/* Heads and tails count entries and wrap at 2^32; the entry of count i is at i modulo the depth. */
struct mrc_ring {
    uint32_t tail;       /* entries put in; the producer writes it */
    uint32_t pad1[15];
    uint32_t head;       /* entries taken out; the consumer writes it */
    uint32_t done;       /* send queue: work requests that have ended; the NIC writes it */
    uint32_t pad2[14];
    uint32_t armed;      /* completion queue: which completion makes the next event */
    uint32_t pad3[15];
};

/* Values of `armed`; 0 is for none. */
#define MRC_ARMED 1           /* any */
#define MRC_ARMED_SOLICITED 2 /* a receive, or an error */

struct mrc_sge {
    uint64_t address;
    uint32_t length;
    uint32_t key;
};

struct mrc_wqe {
    uint64_t wr_id;
    uint64_t remote_address;
    uint32_t remote_key;
    uint32_t immediate;
    uint32_t opcode;     /* enum ibv_wr_opcode */
    uint32_t flags;      /* enum ibv_send_flags */
    uint32_t count;      /* of `sge`; with IBV_SEND_INLINE bytes of `data` */
    uint32_t pad;
    union {
        struct mrc_sge sge[MRC_MAX_SGE];
        uint8_t data[MRC_MAX_INLINE];
    };
};

struct mrc_cqe {
    uint64_t wr_id;
    uint32_t status;     /* enum ibv_wc_status */
    uint32_t opcode;     /* enum ibv_wc_opcode */
    uint32_t length;
    uint32_t immediate;
    uint32_t qpn;
    uint32_t flags;      /* enum ibv_wc_flags */
};

/* What the NIC asks of the library's thread. The bytes to write follow as the next message. The
 * answer is one byte, 0 if it was done, and the bytes that were read. */
struct mrc_copy {
    uint32_t is_write;
    uint32_t count;
    struct mrc_sge places[MRC_MAX_SGE];
};

/* What the pipe of asynchronous events carries. */
struct mrc_event {
    uint64_t cookie;     /* of the queue; 0 for a port */
    uint32_t type;       /* enum ibv_event_type */
    uint32_t port;       /* from 1 on, of a port */
};

#endif
