/* OCP's interface for MRC programs, on the objects of verbs: a CQ, a QP and a channel of the one are
 * those of the other.
 */
#define _GNU_SOURCE
#include "device.h"
#include "mrc_abi.h"
#include "protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { WRITES = 3 }; /* of ibv_qp_create_send_ops_flags: WRITE, and with immediate */

struct mrc_qp_hint {
    struct mrc_qp_hint_attr attr;
    int users;
};

static int failed(int error) {
    errno = error;
    return error ? -1 : 0;
}

static void *refuse(int error) {
    errno = error;
    return NULL;
}

static struct ibv_cq *verbs_cq(struct mrc_cq *cq) { return (struct ibv_cq *)cq; }
static struct ibv_qp *verbs_qp(struct mrc_qp *qp) { return (struct ibv_qp *)qp; }
static struct ibv_comp_channel *verbs_channel(struct mrc_comp_channel *channel) {
    return (struct ibv_comp_channel *)channel;
}

/* ---- the device, and contexts ----------------------------------------------------------------- */

EXPORT int mrc_query_device(struct ibv_context *context, struct mrc_device_attr *attr,
                            int *supported) {
    if (!context || !attr || !supported)
        return failed(EINVAL);
    *supported = mrc0_is_device(context->device);
    memset(attr, 0, sizeof *attr);
    if (*supported) {
        attr->mrc_protocol_version = MRC_PROTOCOL_VERSION_1;
        attr->wimm_attr.max_wimm = attr->wimm_attr.max_wimm_dest = UINT16_MAX;
        attr->mpr_attr.max_mpr = UINT8_MAX;
        attr->mpr_attr.mpr_resolution = 1;
        attr->qp_attr.max_qp_hint = MRC_MAX_HINTS;
        attr->cap = MRC_DEVICE_CAP_TRIM_NACK | MRC_DEVICE_CAP_DYNAMIC_MPR;
    }
    return 0;
}

EXPORT int mrc_query_device_ex(struct ibv_context *context, struct mrc_context *mrc,
                               struct mrc_device_attr *attr, int *supported) {
    (void)mrc;
    return mrc_query_device(context, attr, supported);
}

void mrc0_versions(uint32_t *current, uint32_t *oldest, uint32_t *vendor, uint32_t *oldest_vendor) {
    if (current)
        *current = MRC0_NEWEST_API;
    if (oldest)
        *oldest = 0;
    if (vendor)
        *vendor = MRC0_NEWEST_VENDOR_API;
    if (oldest_vendor)
        *oldest_vendor = 0;
}

EXPORT void mrc_query_version(uint32_t *current, uint32_t *oldest, uint32_t *vendor,
                              uint32_t *oldest_vendor) {
    mrc0_versions(current, oldest, vendor, oldest_vendor);
}

static int is_too_new(const char *what, uint32_t used, uint32_t newest) {
    if (used > newest)
        mrc0_say("mrc0: the program uses version %u.%u.%u of %s; this library has up to %u.%u.%u: "
                 "give mrc_create_context that or an older one", used >> 24, used >> 16 & 0xff,
                 used & 0xffff, what, newest >> 24, newest >> 16 & 0xff, newest & 0xffff);
    return used > newest;
}

EXPORT struct mrc_context *mrc_create_context(struct ibv_context *verbs,
                                              struct mrc_context_attr *attr) {
    uint32_t version = attr ? attr->mrc_api_version_used : 0;
    uint32_t vendor = attr ? attr->mrc_vendor_api_version_used : 0;
    if (!verbs || !mrc0_is_device(verbs->device))
        return refuse(verbs ? EOPNOTSUPP : EINVAL);
    if (is_too_new("mrc.h", version, MRC0_NEWEST_API) ||
        is_too_new("the vendor's part of mrc.h", vendor, MRC0_NEWEST_VENDOR_API))
        return refuse(EOPNOTSUPP);
    struct mrc_context *context = calloc(1, sizeof *context);
    if (context)
        *context = (struct mrc_context){verbs, version ? version : MRC0_NEWEST_API};
    return context;
}

EXPORT int mrc_destroy_context(struct mrc_context *context) {
    free(context);
    return 0;
}

/* ---- completion channels and queues ------------------------------------------------------------ */

EXPORT int mrc_create_comp_channel(struct mrc_context *context, struct mrc_comp_channel **channel) {
    *channel = (struct mrc_comp_channel *)mrc0_create_comp_channel(context->verbs);
    return *channel ? 0 : errno;
}

EXPORT int mrc_get_comp_channel_fd(struct mrc_comp_channel *channel, int *fd) {
    *fd = verbs_channel(channel)->fd;
    return 0;
}

EXPORT int mrc_destroy_comp_channel(struct mrc_comp_channel *channel) {
    return mrc0_destroy_comp_channel(verbs_channel(channel));
}

EXPORT struct mrc_cq *mrc_create_cq(struct mrc_context *context, int cqe, void *cq_context,
                                    struct mrc_comp_channel *channel, int vector) {
    return (struct mrc_cq *)mrc0_create_cq(context->verbs, cqe, cq_context, verbs_channel(channel),
                                           vector);
}

EXPORT int mrc_poll_cq(struct mrc_cq *cq, int count, struct ibv_wc *wc) {
    return verbs_cq(cq)->context->ops.poll_cq(verbs_cq(cq), count, wc);
}

EXPORT int mrc_destroy_cq(struct mrc_cq *cq) { return mrc0_destroy_cq(verbs_cq(cq)); }

EXPORT int mrc_req_notify_cq(struct mrc_cq *cq, int solicited_only) {
    return verbs_cq(cq)->context->ops.req_notify_cq(verbs_cq(cq), solicited_only);
}

EXPORT int mrc_get_cq_event(struct mrc_comp_channel *channel, struct mrc_cq **cq,
                            void **cq_context) {
    struct ibv_cq *found;
    int error = mrc0_get_cq_event(verbs_channel(channel), &found, cq_context);
    if (!error)
        *cq = (struct mrc_cq *)found;
    return error;
}

EXPORT void mrc_ack_cq_events(struct mrc_cq *cq, unsigned int count) {
    mrc0_ack_cq_events(verbs_cq(cq), count);
}

/* ---- hints: kept and shown, the NIC has no use for them ------------------------------------------ */

static void copy_hint(struct mrc_qp_hint_attr *to, const struct mrc_qp_hint_attr *from, int mask) {
    if (mask & MRC_QP_HINT_NUM_QPS_PER_PEER)
        to->num_qps_per_peer = from->num_qps_per_peer;
    if (mask & MRC_QP_HINT_NUM_SEND_PEERS)
        to->num_send_peers = from->num_send_peers;
    if (mask & MRC_QP_HINT_NUM_REMOTE_RECV_PEERS)
        to->num_remote_recv_peers = from->num_remote_recv_peers;
    if (mask & MRC_QP_HINT_VENDOR_CFG)
        memcpy(to->vendor_cfg, from->vendor_cfg, sizeof to->vendor_cfg);
}

EXPORT struct mrc_qp_hint *mrc_create_qp_hint(struct mrc_context *context,
                                              struct mrc_qp_hint_init_attr *init) {
    if (!context || !init)
        return refuse(EINVAL);
    struct mrc_qp_hint *hint = calloc(1, sizeof *hint);
    if (hint)
        hint->attr = init->attr;
    return hint;
}

EXPORT int mrc_destroy_qp_hint(struct mrc_qp_hint *hint) {
    if (!hint)
        return failed(EINVAL);
    if (__atomic_load_n(&hint->users, __ATOMIC_ACQUIRE))
        return failed(EBUSY);
    free(hint);
    return 0;
}

static int is_hint_mask(int mask) {
    return !(mask & ~(MRC_QP_HINT_NUM_QPS_PER_PEER | MRC_QP_HINT_NUM_SEND_PEERS |
                      MRC_QP_HINT_NUM_REMOTE_RECV_PEERS | MRC_QP_HINT_VENDOR_CFG));
}

EXPORT int mrc_query_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask) {
    if (!hint || !attr || !is_hint_mask(mask))
        return failed(EINVAL);
    copy_hint(attr, &hint->attr, mask);
    return 0;
}

EXPORT int mrc_modify_qp_hint(struct mrc_qp_hint *hint, struct mrc_qp_hint_attr *attr, int mask) {
    if (!hint || !attr || !is_hint_mask(mask))
        return failed(EINVAL);
    copy_hint(&hint->attr, attr, mask);
    return 0;
}

static void use_hint(struct mrc_qp_attr *kept, struct mrc_qp_hint *hint) {
    if (hint)
        __atomic_add_fetch(&hint->users, 1, __ATOMIC_ACQ_REL);
    if (kept->qp_hint)
        __atomic_sub_fetch(&kept->qp_hint->users, 1, __ATOMIC_ACQ_REL);
    kept->qp_hint = hint;
}

/* ---- queue pairs -------------------------------------------------------------------------------- */

EXPORT struct mrc_qp *mrc_create_qp(struct mrc_context *context, struct mrc_qp_init_attr *init) {
    if (!context || !init || !init->pd || init->pd->context != context->verbs)
        return refuse(EINVAL);
    if (init->send_ops_flags & ~(uint64_t)WRITES)
        return refuse(mrc0_lacks("operations but WRITE and WRITE with immediate", EOPNOTSUPP));
    if (init->protocol_version != MRC_PROTOCOL_VERSION_0 &&
        init->protocol_version != MRC_PROTOCOL_VERSION_1)
        return refuse(EINVAL);
    struct ibv_qp_init_attr verbs = {
        .qp_context = init->qp_context, .send_cq = verbs_cq(init->send_cq),
        .recv_cq = verbs_cq(init->recv_cq), .cap = init->cap, .qp_type = IBV_QPT_RC,
        .sq_sig_all = init->sq_sig_all};
    struct ibv_qp *qp = mrc0_create_qp(init->pd, &verbs);
    if (!qp)
        return NULL;
    init->cap = verbs.cap;
    struct mrc_state *state = mrc0_mrc_state(qp);
    state->send_ops_flags = init->send_ops_flags;
    state->attr.mpr.mpr = state->attr.mpr.mpr_dest = MRC_DEFAULT_MPR;
    state->attr.wimm.max_wimm = state->attr.wimm.max_wimm_dest = MRC_DEFAULT_WIMM;
    state->attr.retry.linear_cnt = MRC_DEFAULT_LINEAR;
    state->attr.retry.exp_cnt = MRC_DEFAULT_EXPONENTIAL;
    return (struct mrc_qp *)qp;
}

EXPORT int mrc_destroy_qp(struct mrc_qp *qp) {
    struct mrc_qp_attr *kept = &mrc0_mrc_state(verbs_qp(qp))->attr;
    struct mrc_qp_hint *hint = kept->qp_hint;
    int error = mrc0_destroy_qp(verbs_qp(qp));
    if (!error && hint)
        __atomic_sub_fetch(&hint->users, 1, __ATOMIC_ACQ_REL);
    return error;
}

static void remember(struct mrc_qp_attr *kept, const struct mrc_qp_attr *attr, int mask) {
    if (mask & MRC_QP_MAX_WIMM)
        kept->wimm.max_wimm = attr->wimm.max_wimm;
    if (mask & MRC_QP_MAX_WIMM_DEST)
        kept->wimm.max_wimm_dest = attr->wimm.max_wimm_dest;
    if (mask & MRC_QP_MPR)
        kept->mpr.mpr = attr->mpr.mpr;
    if (mask & MRC_QP_MPR_DEST)
        kept->mpr.mpr_dest = attr->mpr.mpr_dest;
    if (mask & MRC_QP_TIMEOUT)
        kept->timeout = attr->timeout;
    if (mask & MRC_QP_EV_PROFILE_ID)
        kept->profile.ev_profile_id = attr->profile.ev_profile_id;
    if (mask & MRC_QP_CC_PROFILE_ID)
        kept->profile.cc_profile_id = attr->profile.cc_profile_id;
    if (mask & MRC_QP_HINT)
        use_hint(kept, attr->qp_hint);
    if (mask & MRC_QP_RETRY_CNT)
        kept->retry = attr->retry;
    if (mask & MRC_QP_CAP)
        kept->cap = attr->cap;
    if (mask & MRC_QP_VENDOR_CFG)
        memcpy(kept->vendor_cfg, attr->vendor_cfg, sizeof kept->vendor_cfg);
}

/* What mrc.h calls unsupported is ignored: programs pass it. */
EXPORT int mrc_modify_qp(struct mrc_qp *qp, struct ibv_qp_attr *verbs, int verbs_mask,
                         struct mrc_qp_attr *attr, int mask) {
    enum { IGNORED = IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY |
                     IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
                     IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE };
    struct ibv_qp *base = verbs_qp(qp);
    struct mrc_state *state = mrc0_mrc_state(base);
    if ((verbs_mask && !verbs) || (mask && !attr))
        return EINVAL;
    int error = 0;
    if (mask) {
        struct mrc_qp_attr changed = state->attr;
        changed.qp_hint = NULL;
        int hint = mask & MRC_QP_HINT;
        remember(&changed, attr, mask & ~hint);
        error = mrc0_set_mrc(base, &changed);
        if (!error)
            remember(&state->attr, attr, mask);
    }
    if (!error && verbs_mask)
        error = mrc0_modify_mrc_qp(base, verbs, verbs_mask & ~IGNORED);
    errno = error;
    return error;
}

EXPORT int mrc_query_qp(struct mrc_qp *qp, struct ibv_qp_attr *verbs, int verbs_mask,
                        struct mrc_qp_attr *attr, int mask, struct mrc_qp_init_attr *init) {
    struct ibv_qp *base = verbs_qp(qp);
    struct mrc_state *state = mrc0_mrc_state(base);
    struct ibv_qp_attr ignored;
    struct ibv_qp_init_attr made;
    int error = mrc0_query_qp(base, verbs ? verbs : &ignored, verbs_mask, &made);
    if (error)
        return error;
    (void)mask; /* which attributes must be there; all are */
    if (attr)
        *attr = state->attr;
    if (init)
        *init = (struct mrc_qp_init_attr){
            .qp_context = made.qp_context, .send_cq = (struct mrc_cq *)made.send_cq,
            .recv_cq = (struct mrc_cq *)made.recv_cq, .cap = made.cap,
            .sq_sig_all = made.sq_sig_all, .pd = base->pd,
            .send_ops_flags = state->send_ops_flags, .protocol_version = MRC_PROTOCOL_VERSION_1};
    return 0;
}

EXPORT int mrc_get_qpn(struct mrc_qp *qp, uint32_t *number) {
    *number = verbs_qp(qp)->qp_num;
    return 0;
}

EXPORT int mrc_post_recv(struct mrc_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    return failed(verbs_qp(qp)->context->ops.post_recv(verbs_qp(qp), wr, bad));
}

EXPORT int mrc_post_send(struct mrc_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    return verbs_qp(qp)->context->ops.post_send(verbs_qp(qp), wr, bad);
}

/* ---- asynchronous events ------------------------------------------------------------------------ */

EXPORT int mrc_get_async_event(struct mrc_context *context, struct mrc_async_event *event) {
    struct ibv_async_event got;
    int error = mrc0_get_async_event(context->verbs, &got);
    if (!error) {
        memcpy(&event->element, &got.element, sizeof event->element);
        event->event_type = got.event_type;
    }
    return error;
}

EXPORT void mrc_ack_async_event(struct mrc_async_event *event) {
    struct ibv_async_event got = {.event_type = event->event_type};
    memcpy(&got.element, &event->element, sizeof got.element);
    mrc0_ack_async_event(&got);
}
