/* What the test programs share: checks, and libibverbs linked or, with BY_PATH, loaded as NCCL does.
 *
 * NCCL asks dlvsym for each function with its version, so a library without versions is of no use.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHECK(condition)                                                                  \
    do {                                                                                  \
        if (!(condition)) {                                                               \
            fprintf(stderr, "%s:%d: %s (errno %d)\n", __FILE__, __LINE__, #condition, errno); \
            exit(1);                                                                      \
        }                                                                                 \
    } while (0)

/* The call fails with NULL and this errno. */
#define REFUSED(error, call)         \
    do {                             \
        errno = 0;                   \
        CHECK(!(call));              \
        CHECK(errno == (error));     \
    } while (0)

#define FUNCTIONS(X)                   \
    X(get_device_list, "1.1")          \
    X(free_device_list, "1.1")         \
    X(get_device_name, "1.1")          \
    X(open_device, "1.1")              \
    X(close_device, "1.1")             \
    X(query_device, "1.1")             \
    X(query_gid, "1.1")                \
    X(alloc_pd, "1.1")                 \
    X(dealloc_pd, "1.1")               \
    X(dereg_mr, "1.1")                 \
    X(rereg_mr, "1.1")                 \
    X(create_cq, "1.1")                \
    X(resize_cq, "1.1")                \
    X(destroy_cq, "1.1")               \
    X(create_comp_channel, "1.0")      \
    X(destroy_comp_channel, "1.0")     \
    X(get_cq_event, "1.1")             \
    X(ack_cq_events, "1.1")            \
    X(create_qp, "1.1")                \
    X(modify_qp, "1.1")                \
    X(query_qp, "1.1")                 \
    X(destroy_qp, "1.1")               \
    X(create_srq, "1.1")               \
    X(create_ah, "1.1")                \
    X(get_async_event, "1.1")          \
    X(ack_async_event, "1.1")          \
    X(fork_init, "1.1")                \
    X(wc_status_str, "1.1")

#ifdef BY_PATH
/* Inline functions of verbs.h stand before these, so they have called the real names already. */
static struct ibv_mr *(*p_reg_mr)(struct ibv_pd *, void *, size_t, int);
static int (*p_query_port)(struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *);
#define DECLARE(name, version) static __typeof__(&ibv_##name) p_##name;
FUNCTIONS(DECLARE)

static void load_verbs(void) {
    void *library = dlopen(getenv("NCCL_IBVERBS_LIB"), RTLD_NOW);
    CHECK(library);
#define LOAD(name, version) \
    CHECK(*(void **)&p_##name = dlvsym(library, "ibv_" #name, "IBVERBS_" version));
    FUNCTIONS(LOAD)
    LOAD(reg_mr, "1.1")
    LOAD(query_port, "1.1")
    CHECK(dlvsym(library, "ibv_reg_mr_iova2", "IBVERBS_1.8"));
    CHECK(dlvsym(library, "ibv_query_ece", "IBVERBS_1.10"));
    CHECK(dlvsym(library, "ibv_reg_dmabuf_mr", "IBVERBS_1.12"));
}

#undef ibv_reg_mr
#undef ibv_query_port
#define ibv_reg_mr p_reg_mr
#define ibv_query_port(context, port, attr) p_query_port(context, port, (void *)(attr))
#define ibv_get_device_list p_get_device_list
#define ibv_free_device_list p_free_device_list
#define ibv_get_device_name p_get_device_name
#define ibv_open_device p_open_device
#define ibv_close_device p_close_device
#define ibv_query_device p_query_device
#define ibv_query_gid p_query_gid
#define ibv_alloc_pd p_alloc_pd
#define ibv_dealloc_pd p_dealloc_pd
#define ibv_dereg_mr p_dereg_mr
#define ibv_rereg_mr p_rereg_mr
#define ibv_create_cq p_create_cq
#define ibv_resize_cq p_resize_cq
#define ibv_destroy_cq p_destroy_cq
#define ibv_create_comp_channel p_create_comp_channel
#define ibv_destroy_comp_channel p_destroy_comp_channel
#define ibv_get_cq_event p_get_cq_event
#define ibv_ack_cq_events p_ack_cq_events
#define ibv_create_qp p_create_qp
#define ibv_modify_qp p_modify_qp
#define ibv_query_qp p_query_qp
#define ibv_destroy_qp p_destroy_qp
#define ibv_create_srq p_create_srq
#define ibv_create_ah p_create_ah
#define ibv_get_async_event p_get_async_event
#define ibv_ack_async_event p_ack_async_event
#define ibv_fork_init p_fork_init
#define ibv_wc_status_str p_wc_status_str
#else
static void load_verbs(void) {}
#endif

enum { ANSWER_S = 120 };

static inline struct ibv_wc completion(struct ibv_cq *cq) {
    struct ibv_wc wc;
    time_t end = time(NULL) + ANSWER_S;
    int count;
    while (!(count = ibv_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) < end);
    CHECK(count == 1);
    return wc;
}

static inline void succeeds(struct ibv_cq *cq, uint64_t wr_id) {
    struct ibv_wc wc = completion(cq);
    if (wc.status != IBV_WC_SUCCESS)
        fprintf(stderr, "%s\n", ibv_wc_status_str(wc.status));
    CHECK(wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

static inline int post_write(struct ibv_qp *qp, uint64_t wr_id, struct ibv_mr *mr, size_t from,
                             size_t to, uint32_t size, enum ibv_wr_opcode opcode) {
    struct ibv_sge sge = {(uintptr_t)mr->addr + from, size, mr->lkey};
    struct ibv_send_wr *bad = NULL, wr = {
        .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)mr->addr + to, mr->rkey}};
    int error = ibv_post_send(qp, &wr, &bad);
    CHECK(!error == !bad);
    return error;
}

static inline int post_receive(struct ibv_qp *qp, uint64_t wr_id) {
    struct ibv_recv_wr *bad, wr = {.wr_id = wr_id};
    return ibv_post_recv(qp, &wr, &bad);
}

static inline struct ibv_qp *make_qp(struct ibv_pd *pd, struct ibv_cq *sends,
                                     struct ibv_cq *receives, enum ibv_qp_type type) {
    struct ibv_qp_init_attr init = {.send_cq = sends, .recv_cq = receives, .qp_type = type,
                                    .cap = {16, 16, 2, 1, 64}};
    return ibv_create_qp(pd, &init);
}

static inline void connect_qp(struct ibv_qp *qp, const union ibv_gid *peer, uint32_t number) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {
        .qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096, .dest_qp_num = number, .rq_psn = 9,
        .min_rnr_timer = 12, .ah_attr = {.grh.dgid = *peer, .is_global = 1, .port_num = 1}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .sq_psn = 9, .timeout = 14,
                              .retry_cnt = 7, .rnr_retry = 7, .max_rd_atomic = 1};
    CHECK(!ibv_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS));
    CHECK(!ibv_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN |
                                       IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
                                       IBV_QP_MIN_RNR_TIMER));
    CHECK(!ibv_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                                       IBV_QP_MAX_QP_RD_ATOMIC));
}

static inline struct ibv_context *open_mrc0(void) {
    load_verbs();
    CHECK(!ibv_fork_init());
    int count;
    struct ibv_device **list = ibv_get_device_list(&count);
    CHECK(list && count >= 1 && !strcmp(ibv_get_device_name(list[0]), "mrc0"));
    struct ibv_context *context = ibv_open_device(list[0]);
    CHECK(context);
    ibv_free_device_list(list);
    return context;
}
