/* OCP's interface for controllers. The NIC process reads and writes the caller's structures where
 * they are; what a query leaves in them is written here first, for tools that watch memory.
 */
#define _GNU_SOURCE
#include "device.h"
#include "protocol.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum { LOOK_FOR_ANSWERS_NS = 500 * 1000 };

static const char NSCC[] = "uet-1.0-nscc";
static const char *algorithms[] = {NSCC, NULL};

static int failed(int error) {
    errno = error;
    return error ? -1 : 0;
}

static int call(struct ibv_context *verbs, enum mrc_call what, uint64_t id, int mask, void *data,
                size_t size, struct mrc_reply *reply) {
    struct mrc_request request = {.op = MRC_CONTROL, .handle = what, .cookie = id, .mask = mask,
                                  .address = (uintptr_t)data, .length = size};
    struct mrc_reply unused;
    return mrc0_ask(verbs, &request, reply ? reply : &unused);
}

/* ---- the device and its ports ------------------------------------------------------------------- */

EXPORT int mrc_ctl_query_device_ex(struct ibv_context *verbs, struct mrc_context *context,
                                   struct mrc_ctl_device_attr *attr, int *supported) {
    (void)context;
    if (!verbs || !attr || !supported)
        return failed(EINVAL);
    memset(attr, 0, sizeof *attr);
    *supported = mrc0_is_device(verbs->device);
    if (!*supported)
        return 0;
    int error = call(verbs, MRC_QUERY_CONTROL, 0, 0, attr, sizeof *attr, NULL);
    attr->cc.algorithms = algorithms;
    return failed(error);
}

EXPORT int mrc_ctl_query_device(struct ibv_context *verbs, struct mrc_ctl_device_attr *attr) {
    int supported;
    if (mrc_ctl_query_device_ex(verbs, NULL, attr, &supported))
        return -1;
    return failed(supported ? 0 : EOPNOTSUPP);
}

EXPORT void mrc_ctl_query_version(uint32_t *current, uint32_t *oldest, uint32_t *vendor,
                                  uint32_t *oldest_vendor) {
    mrc0_versions(current, oldest, vendor, oldest_vendor);
}

EXPORT int mrc_ctl_query_port(struct mrc_context *context, uint8_t port,
                              struct mrc_ctl_port_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    attr->port_admin_state = 0;
    return failed(call(context->verbs, MRC_QUERY_PORT, port, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_modify_port(struct mrc_context *context, uint8_t port,
                               struct mrc_ctl_port_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    return failed(call(context->verbs, MRC_MODIFY_PORT, port, mask, attr, sizeof *attr, NULL));
}

/* ---- profiles ----------------------------------------------------------------------------------- */

EXPORT int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *context, uint64_t id,
                                         struct mrc_ctl_ev_fmt_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    return failed(call(context->verbs, MRC_MODIFY_FORMAT, id, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_query_ev_fmt_profile(struct mrc_context *context, uint64_t id,
                                        struct mrc_ctl_ev_fmt_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    struct mrc_ctl_ev_fmt_profile_attr blank = {0};
    if (mask & MRC_CTL_EV_FMT_PROFILE_OP) {
        blank.ev_fmt_op = attr->ev_fmt_op;
        if (blank.ev_fmt_op.fmt_fields && blank.ev_fmt_op.fmt_field_count > 0)
            memset(blank.ev_fmt_op.fmt_fields, 0,
                   blank.ev_fmt_op.fmt_field_count * sizeof *blank.ev_fmt_op.fmt_fields);
    }
    *attr = blank;
    return failed(call(context->verbs, MRC_QUERY_FORMAT, id, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_modify_ev_profile(struct mrc_context *context, uint64_t id,
                                     struct mrc_ctl_ev_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    return failed(call(context->verbs, MRC_MODIFY_EVS, id, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_query_ev_profile(struct mrc_context *context, uint64_t id,
                                    struct mrc_ctl_ev_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    struct mrc_ctl_ev_profile_attr blank = {0};
    if (mask & MRC_CTL_EV_PROFILE_EV_OP) {
        blank.ev_op = attr->ev_op;
        for (int i = 0; blank.ev_op.entries && i < blank.ev_op.entry_count; i++) {
            if (blank.ev_op.op == MRC_CTL_EV_OP_QUERY_EV_ARRAY)
                memset(&blank.ev_op.entries[i], 0, sizeof blank.ev_op.entries[i]);
            blank.ev_op.entries[i].state = 0;
        }
    }
    if (mask & MRC_CTL_EV_PROFILE_EV_FIELDS_OP) {
        blank.ev_fields_op = attr->ev_fields_op;
        if (blank.ev_fields_op.fields && blank.ev_fields_op.field_count > 0)
            memset(blank.ev_fields_op.fields, 0,
                   blank.ev_fields_op.field_count * sizeof *blank.ev_fields_op.fields);
    }
    *attr = blank;
    return failed(call(context->verbs, MRC_QUERY_EVS, id, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_modify_cc_profile(struct mrc_context *context, uint64_t id,
                                     struct mrc_ctl_cc_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    if (mask & MRC_CTL_CC_PROFILE_ALGORITHM && attr->algorithm && strcmp(attr->algorithm, NSCC))
        return failed(EINVAL);
    return failed(call(context->verbs, MRC_MODIFY_CC, id, mask, attr, sizeof *attr, NULL));
}

EXPORT int mrc_ctl_query_cc_profile(struct mrc_context *context, uint64_t id,
                                    struct mrc_ctl_cc_profile_attr *attr, int mask) {
    if (!context || !attr)
        return failed(EINVAL);
    struct mrc_ctl_cc_profile_attr blank = {0};
    if (mask & MRC_CTL_CC_PROFILE_CONFIG && attr->cc_config) {
        blank.cc_config = attr->cc_config;
        memset((void *)(uintptr_t)blank.cc_config, 0, sizeof(struct mrc_ctl_cc_nscc_cfg));
    }
    *attr = blank;
    int error = call(context->verbs, MRC_QUERY_CC, id, mask, attr, sizeof *attr, NULL);
    if (!error && mask & MRC_CTL_CC_PROFILE_ALGORITHM && attr->algorithm)
        attr->algorithm = NSCC; /* the NIC says only that it has one */
    return failed(error);
}

/* ---- EV events ---------------------------------------------------------------------------------- */

EXPORT struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *context, int cqe,
                                                 void *cq_context,
                                                 struct mrc_comp_channel *channel, int vector) {
    /* No structure has the controller interface's own version: the size of an event follows
     * that of mrc.h. */
    size_t size = sizeof(struct mrc_ctl_ev_event);
    if (context->version < MRC_API_VER(1, 0, 1))
        size = offsetof(struct mrc_ctl_ev_event, state);
    return (struct mrc_cq *)mrc0_create_event_cq(
        context->verbs, cqe, cq_context, (struct ibv_comp_channel *)channel, vector, size);
}

EXPORT int mrc_ctl_poll_ev_event(struct mrc_cq *cq, int count, struct mrc_ctl_ev_event *event) {
    struct ibv_cq *verbs = (struct ibv_cq *)cq;
    size_t size = mrc0_event_size(verbs);
    if (!size || count < 0 || (count && !event))
        return -EINVAL;
    memset(event, 0, count * size);
    struct mrc_reply reply;
    int error = call(verbs->context, MRC_POLL_EV_EVENTS, verbs->handle, size, event, count * size,
                     &reply);
    return error ? -error : (int)reply.handle;
}

/* ---- requests of an endpoint -------------------------------------------------------------------- */

EXPORT int mrc_ctl_ep_batch_send_wait(struct mrc_context *context, uint8_t class, int type,
                                      struct mrc_ctl_ep_req *requests, int count, uint32_t timeout,
                                      struct mrc_ctl_ep_rsp *responses, int *answered) {
    (void)class; /* probes travel in MRC's class of control packets */
    if (!context || !requests || !responses || !answered || count < 1)
        return failed(EINVAL);
    *answered = 0;
    if (type == MRC_CTL_EP_OP_PORT_STATUS_UPDATE)
        return failed(mrc0_lacks("port status updates by hand; mrc_ctl_modify_port sends them",
                                 ENOTSUP));
    if (type != MRC_CTL_EP_OP_EV_PROBE)
        return failed(EINVAL);
    memset(responses, 0, count * sizeof *responses);
    struct mrc_reply reply;
    int error = call(context->verbs, MRC_SEND_PROBES, timeout, count, requests,
                     count * sizeof *requests, &reply);
    uint32_t batch = reply.handle;
    while (!error) {
        nanosleep(&(struct timespec){.tv_nsec = LOOK_FOR_ANSWERS_NS}, NULL);
        error = call(context->verbs, MRC_TAKE_PROBES, batch, count, responses,
                     count * sizeof *responses, &reply);
        if (!error && reply.state) {
            *answered = reply.handle;
            return failed(*answered < count ? ETIMEDOUT : 0);
        }
    }
    return failed(error);
}
