/* OCP's functions, for the test programs: their structures are those of mrc_abi.h. */
#include "verbs.h"

#include "mrc_abi.h"

int mrc_query_device(struct ibv_context *, struct mrc_device_attr *, int *);
int mrc_query_device_ex(struct ibv_context *, struct mrc_context *, struct mrc_device_attr *, int *);
void mrc_query_version(uint32_t *, uint32_t *, uint32_t *, uint32_t *);
struct mrc_context *mrc_create_context(struct ibv_context *, struct mrc_context_attr *);
int mrc_destroy_context(struct mrc_context *);
int mrc_create_comp_channel(struct mrc_context *, struct mrc_comp_channel **);
int mrc_get_comp_channel_fd(struct mrc_comp_channel *, int *);
int mrc_destroy_comp_channel(struct mrc_comp_channel *);
struct mrc_cq *mrc_create_cq(struct mrc_context *, int, void *, struct mrc_comp_channel *, int);
int mrc_poll_cq(struct mrc_cq *, int, struct ibv_wc *);
int mrc_destroy_cq(struct mrc_cq *);
struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *, struct mrc_qp_hint_init_attr *);
int mrc_destroy_qp_hint(struct mrc_qp_hint *);
int mrc_query_qp_hint(struct mrc_qp_hint *, struct mrc_qp_hint_attr *, int);
int mrc_modify_qp_hint(struct mrc_qp_hint *, struct mrc_qp_hint_attr *, int);
struct mrc_qp *mrc_create_qp(struct mrc_context *, struct mrc_qp_init_attr *);
int mrc_destroy_qp(struct mrc_qp *);
int mrc_query_qp(struct mrc_qp *, struct ibv_qp_attr *, int, struct mrc_qp_attr *, int,
                 struct mrc_qp_init_attr *);
int mrc_modify_qp(struct mrc_qp *, struct ibv_qp_attr *, int, struct mrc_qp_attr *, int);
int mrc_get_qpn(struct mrc_qp *, uint32_t *);
int mrc_post_recv(struct mrc_qp *, struct ibv_recv_wr *, struct ibv_recv_wr **);
int mrc_post_send(struct mrc_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
int mrc_get_async_event(struct mrc_context *, struct mrc_async_event *);
void mrc_ack_async_event(struct mrc_async_event *);
int mrc_req_notify_cq(struct mrc_cq *, int);
int mrc_get_cq_event(struct mrc_comp_channel *, struct mrc_cq **, void **);
void mrc_ack_cq_events(struct mrc_cq *, unsigned int);

static inline struct mrc_qp *make_mrc_qp(struct mrc_context *context, struct ibv_pd *pd,
                                         struct mrc_cq *sends, struct mrc_cq *receives) {
    struct mrc_qp_init_attr init = {.send_cq = sends, .recv_cq = receives, .pd = pd,
                                    .qp_context = context, .cap = {16, 16, 1, 1, 0}};
    struct mrc_qp *qp = mrc_create_qp(context, &init);
    CHECK(qp && init.cap.max_send_wr >= 16);
    return qp;
}

/* As OCP's and Microsoft's programs do, with what mrc.h calls unsupported. */
static inline void connect_mrc_qp(struct mrc_qp *qp, const union ibv_gid *peer, uint32_t number,
                                  struct mrc_qp_attr *attr, int init_mask, int rtr_mask,
                                  int rts_mask) {
    struct ibv_qp_attr init = {.qp_state = IBV_QPS_INIT, .port_num = 1,
                               .qp_access_flags = IBV_ACCESS_REMOTE_WRITE};
    struct ibv_qp_attr rtr = {.qp_state = IBV_QPS_RTR, .path_mtu = IBV_MTU_4096,
                              .dest_qp_num = number, .rq_psn = 0,
                              .ah_attr = {.grh.dgid = *peer, .is_global = 1, .port_num = 1}};
    struct ibv_qp_attr rts = {.qp_state = IBV_QPS_RTS, .timeout = 7, .retry_cnt = 14,
                              .rnr_retry = 14};
    CHECK(!mrc_modify_qp(qp, &init, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
                                        IBV_QP_ACCESS_FLAGS, attr, init_mask));
    CHECK(!mrc_modify_qp(qp, &rtr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                                       IBV_QP_PATH_MTU, attr, rtr_mask));
    CHECK(!mrc_modify_qp(qp, &rts, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_RETRY_CNT |
                                       IBV_QP_RNR_RETRY | IBV_QP_TIMEOUT, attr, rts_mask));
}

static inline void mrc_succeeds(struct mrc_cq *cq, uint64_t wr_id) {
    struct ibv_wc wc;
    time_t end = time(NULL) + ANSWER_S;
    int count;
    while (!(count = mrc_poll_cq(cq, 1, &wc)))
        CHECK(time(NULL) < end);
    CHECK(count == 1 && wc.status == IBV_WC_SUCCESS && wc.wr_id == wr_id);
}

static inline int post_mrc_write(struct mrc_qp *qp, uint64_t wr_id, struct ibv_mr *mr, size_t to,
                                 uint32_t size, enum ibv_wr_opcode opcode) {
    struct ibv_sge sge = {(uintptr_t)mr->addr, size, mr->lkey};
    struct ibv_send_wr *bad = NULL, wr = {
        .wr_id = wr_id, .sg_list = &sge, .num_sge = 1, .opcode = opcode,
        .send_flags = IBV_SEND_SIGNALED, .wr.rdma = {(uintptr_t)mr->addr + to, mr->rkey}};
    return mrc_post_send(qp, &wr, &bad);
}
