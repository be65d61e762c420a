/* A program of OCP's mrc.h: every function, right and wrong, on two queue pairs of its own. */
#include "ocp.h"

#define VERSION(major, minor, sub) ((major) << 24 | (minor) << 16 | (sub))

enum { SIZE = 1 << 16, LINEAR = 3, EXPONENTIAL = 25 };

static void versions(struct ibv_context *verbs) {
    uint32_t current, oldest, vendor, oldest_vendor;
    mrc_query_version(&current, &oldest, &vendor, &oldest_vendor);
    CHECK(current == VERSION(1, 0, 1) && !oldest && vendor == VERSION(1, 0, 0) && !oldest_vendor);
    uint32_t fit[] = {0, VERSION(0, 0, 1), VERSION(1, 0, 0), VERSION(1, 0, 1)};
    for (size_t i = 0; i < sizeof fit / sizeof *fit; i++) {
        struct mrc_context *context =
            mrc_create_context(verbs, &(struct mrc_context_attr){.mrc_api_version_used = fit[i]});
        CHECK(context && !mrc_destroy_context(context));
    }
    uint32_t new[] = {VERSION(1, 0, 2), VERSION(1, 1, 0), VERSION(2, 0, 0), UINT32_MAX};
    for (size_t i = 0; i < sizeof new / sizeof *new; i++) {
        struct mrc_context_attr attr = {.mrc_api_version_used = new[i]};
        REFUSED(EOPNOTSUPP, mrc_create_context(verbs, &attr));
        attr = (struct mrc_context_attr){.mrc_vendor_api_version_used = new[i]};
        REFUSED(EOPNOTSUPP, mrc_create_context(verbs, &attr));
    }
    REFUSED(EINVAL, mrc_create_context(NULL, NULL));
}

static void hints(struct mrc_context *context, struct mrc_qp *qp) {
    struct mrc_qp_hint_init_attr init = {.attr = {.num_qps_per_peer = 2, .num_send_peers = 7}};
    struct mrc_qp_hint *hint = mrc_create_qp_hint(context, &init);
    struct mrc_qp_hint_attr attr = {.num_send_peers = 9, .num_qps_per_peer = 9};
    CHECK(hint && !mrc_modify_qp_hint(hint, &attr, MRC_QP_HINT_NUM_SEND_PEERS));
    memset(&attr, 0, sizeof attr);
    int all = MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS |
              MRC_QP_HINT_NUM_REMOTE_RECV_PEERS | MRC_QP_HINT_VENDOR_CFG;
    CHECK(!mrc_query_qp_hint(hint, &attr, all));
    CHECK(attr.num_qps_per_peer == 2 && attr.num_send_peers == 9);
    CHECK(mrc_query_qp_hint(hint, &attr, 8) == -1 && errno == EINVAL);
    struct mrc_qp_attr uses = {.qp_hint = hint}, none = {.qp_hint = NULL};
    CHECK(!mrc_modify_qp(qp, NULL, 0, &uses, MRC_QP_HINT));
    CHECK(mrc_destroy_qp_hint(hint) == -1 && errno == EBUSY);
    CHECK(!mrc_modify_qp(qp, NULL, 0, &none, MRC_QP_HINT) && !mrc_destroy_qp_hint(hint));
}

int main(void) {
    struct ibv_context *verbs = open_mrc0();
    struct mrc_device_attr device;
    int supported = 0;
    CHECK(!mrc_query_device(verbs, &device, &supported) && supported);
    CHECK(device.mrc_protocol_version == MRC_PROTOCOL_VERSION_1 && device.mpr_attr.max_mpr == 255);
    versions(verbs);
    struct mrc_context *context = mrc_create_context(verbs, NULL);
    CHECK(context && !mrc_query_device_ex(verbs, context, &device, &supported) && supported);
    union ibv_gid gid;
    CHECK(!ibv_query_gid(verbs, 1, 0, &gid));
    struct ibv_pd *pd = ibv_alloc_pd(verbs);
    char *memory = calloc(1, SIZE);
    strcpy(memory, "over MRC");
    struct ibv_mr *mr =
        ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct mrc_comp_channel *channel;
    int fd = -1;
    CHECK(mr && !mrc_create_comp_channel(context, &channel));
    CHECK(!mrc_get_comp_channel_fd(channel, &fd) && fd >= 0);
    struct mrc_cq *sends = mrc_create_cq(context, 16, NULL, NULL, 0);
    struct mrc_cq *receives = mrc_create_cq(context, 16, &gid, channel, 0);
    REFUSED(EINVAL, mrc_create_cq(context, 0, NULL, NULL, 0));
    struct mrc_qp *a = make_mrc_qp(context, pd, sends, receives);
    struct mrc_qp *b = make_mrc_qp(context, pd, sends, receives);
    struct mrc_qp_init_attr wrong = {.send_cq = sends, .recv_cq = receives, .pd = pd,
                                     .protocol_version = 2};
    REFUSED(EINVAL, mrc_create_qp(context, &wrong));
    wrong = (struct mrc_qp_init_attr){.send_cq = sends, .recv_cq = receives, .pd = pd,
                                      .send_ops_flags = IBV_QP_EX_WITH_RDMA_READ};
    REFUSED(EOPNOTSUPP, mrc_create_qp(context, &wrong));
    hints(context, a);

    /* Attributes: out of their ranges, kept, and those of one end as the other has them. */
    struct mrc_qp_attr bad[] = {
        {.mpr = {0, 8}}, {.mpr = {8, 8}, .timeout = 25}, {.mpr = {8, 8}, .retry = {8, 0}},
        {.mpr = {8, 8}, .retry = {0, 26}}, {.mpr = {8, 8}, .cap = 8}, {.mpr = {8, 8}},
        {.mpr = {8, 8}, .profile.ev_profile_id = 99}, {.mpr = {8, 8}, .profile.cc_profile_id = 99}};
    int all = MRC_QP_MPR | MRC_QP_MPR_DEST | MRC_QP_TIMEOUT | MRC_QP_RETRY_CNT | MRC_QP_CAP |
              MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        int wimm = i == 5 ? MRC_QP_MAX_WIMM : 0; /* one of 0 */
        CHECK(mrc_modify_qp(a, NULL, 0, &bad[i], all | wimm) == EINVAL);
    }
    struct mrc_qp_attr attr = {.mpr = {2, 4}, .wimm = {32, 40}, .timeout = 20,
                               .retry = {LINEAR, EXPONENTIAL}};
    struct mrc_qp_attr other = {.mpr = {4, 2}, .wimm = {40, 32}};
    uint32_t a_number, b_number;
    CHECK(!mrc_get_qpn(a, &a_number) && !mrc_get_qpn(b, &b_number) && a_number != b_number);
    connect_mrc_qp(a, &gid, b_number, &attr, 0, MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST,
                   MRC_QP_MPR | MRC_QP_MAX_WIMM | MRC_QP_RETRY_CNT | MRC_QP_TIMEOUT);
    connect_mrc_qp(b, &gid, a_number, &other, 0, MRC_QP_MPR_DEST | MRC_QP_MAX_WIMM_DEST,
                   MRC_QP_MPR | MRC_QP_MAX_WIMM);
    struct ibv_qp_attr verbs_attr;
    struct mrc_qp_attr kept;
    struct mrc_qp_init_attr made;
    CHECK(!mrc_query_qp(a, &verbs_attr, IBV_QP_STATE, &kept, all, &made));
    CHECK(verbs_attr.qp_state == IBV_QPS_RTS && kept.mpr.mpr == 2 && kept.mpr.mpr_dest == 4);
    CHECK(kept.retry.linear_cnt == LINEAR && kept.retry.exp_cnt == EXPONENTIAL);
    CHECK(made.pd == pd && made.send_cq == sends && made.qp_context == context);

    CHECK(!post_mrc_write(a, 1, mr, 100, SIZE / 2, IBV_WR_RDMA_WRITE));
    mrc_succeeds(sends, 1);
    CHECK(!memcmp(memory, memory + 100, 100));
    CHECK(post_mrc_write(a, 1, mr, 100, 1, IBV_WR_SEND) == EINVAL);
    struct ibv_recv_wr *bad_recv, recv = {.wr_id = 2};
    CHECK(!mrc_req_notify_cq(receives, 0) && !mrc_post_recv(b, &recv, &bad_recv));
    CHECK(!post_mrc_write(a, 3, mr, 200, 8, IBV_WR_RDMA_WRITE_WITH_IMM));
    struct mrc_cq *ready;
    void *argument;
    CHECK(!mrc_get_cq_event(channel, &ready, &argument) && ready == receives && argument == &gid);
    mrc_ack_cq_events(ready, 1);
    mrc_succeeds(receives, 2);
    mrc_succeeds(sends, 3);

    /* An immediate without a receive is the peer's error. */
    CHECK(!post_mrc_write(a, 4, mr, 200, 8, IBV_WR_RDMA_WRITE_WITH_IMM));
    struct mrc_async_event event;
    CHECK(!mrc_get_async_event(context, &event));
    CHECK(event.event_type == IBV_EVENT_QP_REQ_ERR && event.element.qp == b);
    mrc_ack_async_event(&event);

    CHECK(mrc_destroy_cq(sends) == EBUSY);
    CHECK(!mrc_destroy_qp(a) && !mrc_destroy_qp(b) && !mrc_destroy_cq(sends));
    CHECK(!mrc_destroy_cq(receives) && !mrc_destroy_comp_channel(channel));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd) && !mrc_destroy_context(context));
    CHECK(!ibv_close_device(verbs));
    free(memory);

    /* By all names it is the library that the program has already. */
    void *first = dlopen("libmrc.so", RTLD_NOW);
    CHECK(first && dlopen("lib_mrc.so", RTLD_NOW) == first);
    CHECK(dlopen("libnv_mrc.so", RTLD_NOW) == first && dlsym(first, "mrc_post_send"));
    puts("done");
    return 0;
}
