/* The device mrc0 in a program: what entry.c dispatches to. */
#ifndef MRC_DEVICE_H
#define MRC_DEVICE_H

#include "mrc_abi.h"
#include "protocol.h"

extern struct ibv_device mrc0_device;

/* A program may have this library twice: preloaded, and loaded by its path. Each knows the other's
 * device, and what belongs to it, by this. */
#define MRC0_MAGIC ((void *)(uintptr_t)0x306372)

static inline int mrc0_is_device(const struct ibv_device *device) {
    return device && device->_ops[0] == MRC0_MAGIC;
}

/* Print a line on standard error: what is not there, and why. */
void mrc0_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Say once for each kind what MRC does not have; sets errno to `error` and returns it. */
int mrc0_lacks(const char *what, int error);

#define MRC0_NO_SRQ "shared receive queues (SRQ)"
#define MRC0_NO_XRC "extended reliable connections (XRC)"
#define MRC0_NO_UD "datagrams (UD); it has RC"

#define MRC0_SAY_ONCE(...)          \
    do {                           \
        static int said;           \
        if (!said) {               \
            said = 1;              \
            mrc0_say(__VA_ARGS__);  \
        }                          \
    } while (0)

/* ---- for mrc.h ---------------------------------------------------------------------------------- */

#define MRC0_NEWEST_API MRC_API_VER(1, 0, 1)
#define MRC0_NEWEST_VENDOR_API MRC_API_VER(1, 0, 0)

struct mrc_context {
    struct ibv_context *verbs;
    uint32_t version; /* of mrc.h that the program uses */
};

/* What mrc.h knows of a queue pair, and verbs does not. */
struct mrc_state {
    struct mrc_qp_attr attr;
    uint64_t send_ops_flags;
};

void mrc0_versions(uint32_t *current, uint32_t *oldest, uint32_t *vendor, uint32_t *oldest_vendor);
struct mrc_state *mrc0_mrc_state(struct ibv_qp *qp);
int mrc0_set_mrc(struct ibv_qp *qp, const struct mrc_qp_attr *attr);
int mrc0_modify_mrc_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int mrc0_ask(struct ibv_context *context, const struct mrc_request *request,
             struct mrc_reply *reply);
struct ibv_cq *mrc0_create_event_cq(struct ibv_context *context, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector, size_t size);
size_t mrc0_event_size(struct ibv_cq *cq); /* 0: it is a queue of completions */

/* ---- for verbs ---------------------------------------------------------------------------------- */

/* The thread that moves payload for the NIC, if it cannot do so itself; all 0: there is none. */
struct payload {
    pthread_t thread;
    int fd;
    pid_t owner;
};

int mrc0_start_payload(struct payload *payload, int fd);
void mrc0_end_payload(struct payload *payload);

int mrc0_is_here(void); /* whether the network namespace has a NIC */
struct ibv_context *mrc0_open_device(struct ibv_device *device);
int mrc0_close_device(struct ibv_context *context);
int mrc0_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int mrc0_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
int mrc0_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
int mrc0_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *entry, uint32_t flags, size_t size);
ssize_t mrc0_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                            size_t count, uint32_t flags, size_t size);
int mrc0_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey);
int mrc0_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey);
struct ibv_pd *mrc0_alloc_pd(struct ibv_context *context);
int mrc0_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *mrc0_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                          unsigned int access);
int mrc0_dereg_mr(struct ibv_mr *mr);
int mrc0_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
                  int access);
struct ibv_comp_channel *mrc0_create_comp_channel(struct ibv_context *context);
int mrc0_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *mrc0_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector);
int mrc0_resize_cq(struct ibv_cq *cq, int cqe);
int mrc0_destroy_cq(struct ibv_cq *cq);
int mrc0_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void mrc0_ack_cq_events(struct ibv_cq *cq, unsigned int count);
struct ibv_qp *mrc0_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int mrc0_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int mrc0_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init);
int mrc0_destroy_qp(struct ibv_qp *qp);
int mrc0_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void mrc0_ack_async_event(struct ibv_async_event *event);

#endif
