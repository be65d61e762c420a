/* The device mrc0 in a program: what entry.c dispatches to. */
#ifndef MRC_DEVICE_H
#define MRC_DEVICE_H

#include "verbs_abi.h"

extern struct ibv_device mrc_device;

/* Print a line on standard error: what is not there, and why. */
void mrc_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define MRC_SAY_ONCE(...)          \
    do {                           \
        static int said;           \
        if (!said) {               \
            said = 1;              \
            mrc_say(__VA_ARGS__);  \
        }                          \
    } while (0)

int mrc_is_here(void); /* whether the network namespace has a NIC */
struct ibv_context *mrc_open_device(struct ibv_device *device);
int mrc_close_device(struct ibv_context *context);
int mrc_query_device(struct ibv_context *context, struct ibv_device_attr *attr);
int mrc_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr);
int mrc_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid);
int mrc_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *entry, uint32_t flags, size_t size);
ssize_t mrc_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                            size_t count, uint32_t flags, size_t size);
int mrc_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey);
int mrc_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey);
struct ibv_pd *mrc_alloc_pd(struct ibv_context *context);
int mrc_dealloc_pd(struct ibv_pd *pd);
struct ibv_mr *mrc_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                          unsigned int access);
int mrc_dereg_mr(struct ibv_mr *mr);
struct ibv_comp_channel *mrc_create_comp_channel(struct ibv_context *context);
int mrc_destroy_comp_channel(struct ibv_comp_channel *channel);
struct ibv_cq *mrc_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                             struct ibv_comp_channel *channel, int vector);
int mrc_destroy_cq(struct ibv_cq *cq);
int mrc_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context);
void mrc_ack_cq_events(struct ibv_cq *cq, unsigned int count);
struct ibv_qp *mrc_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init);
int mrc_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask);
int mrc_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init);
int mrc_destroy_qp(struct ibv_qp *qp);
int mrc_get_async_event(struct ibv_context *context, struct ibv_async_event *event);
void mrc_ack_async_event(struct ibv_async_event *event);

#endif
