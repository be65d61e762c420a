/* A controller and a program of its own, by OCP's mrc_ctl.h: every function, right and wrong. */
#include "ctl.h"

#include <linux/capability.h>
#include <sys/syscall.h>

#define STATES (MRC_CTL_EV_GOOD | MRC_CTL_EV_ASSUMED_BAD)

enum { FORMAT = 13, EVS = 1, GENERATED = 2, SRV6 = 3, CC = 5, OFF = 6, SIZE = 1 << 14 };

static struct mrc_context *context;

static struct mrc_ctl_ev stev(uint32_t label, uint32_t entropy, int port) {
    struct mrc_ctl_ev ev = {.port = port};
    uint32_t value = label << 16 | entropy;
    memcpy(ev.val, &value, sizeof value);
    return ev;
}

static void device(struct ibv_context *verbs) {
    struct mrc_ctl_device_attr attr;
    int supported = 0;
    CHECK(!mrc_ctl_query_device_ex(verbs, context, &attr, &supported) && supported);
    CHECK(!mrc_ctl_query_device(verbs, &attr));
    CHECK(attr.phy_port_mask == 6 && attr.ev.ev_max_count_profile == 256);
    CHECK(attr.ev.ev_free_count == attr.ev.ev_max_count);
    CHECK(attr.ev.ev_mode_mask == 7 && attr.ev.ev_fmt_mode_mask == 3);
    CHECK(attr.opt_attr & MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT);
    CHECK(!strcmp(attr.cc.algorithms[0], "uet-1.0-nscc") && !attr.cc.algorithms[1]);
    uint32_t versions[4];
    mrc_ctl_query_version(versions, versions + 1, versions + 2, versions + 3);
    CHECK(versions[0] == MRC_API_VER(1, 0, 1) && !versions[1]);
}

static int set_port(int number, int state) {
    struct mrc_ctl_port_attr attr = {state};
    return mrc_ctl_modify_port(context, number, &attr, MRC_CTL_PORT_ADMIN_STATE);
}

static int port_state(int number) {
    struct mrc_ctl_port_attr attr;
    CHECK(!mrc_ctl_query_port(context, number, &attr, MRC_CTL_PORT_ADMIN_STATE));
    return attr.port_admin_state;
}

static void ports(struct ibv_context *verbs) {
    struct ibv_port_attr attr;
    for (int number = 1; number <= 2; number++) {
        CHECK(port_state(number) == 1 && !set_port(number, 0) && !port_state(number));
        CHECK(!ibv_query_port(verbs, number, &attr) && attr.state == IBV_PORT_DOWN);
        struct mrc_async_event event;
        CHECK(!mrc_get_async_event(context, &event) && event.event_type == IBV_EVENT_PORT_ERR);
        CHECK(event.element.port_num == number);
        CHECK(!set_port(number, 1) && port_state(number) == 1);
        CHECK(!mrc_get_async_event(context, &event) && event.event_type == IBV_EVENT_PORT_ACTIVE);
        CHECK(!ibv_query_port(verbs, number, &attr) && attr.state == IBV_PORT_ACTIVE);
    }
    FAILS(EINVAL, set_port(0, 1));
    FAILS(EINVAL, set_port(3, 1));
    FAILS(EINVAL, set_port(1, 2));
}

static int format(uint64_t id, int state, int mode, int first, int second) {
    struct mrc_ctl_ev_fmt_field fields[] = {{first}, {second}};
    struct mrc_ctl_ev_fmt_profile_attr attr = {
        .profile_state = state, .ev_fmt_mode = mode,
        .ev_fmt_op = {MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, fields, 2}};
    return mrc_ctl_modify_ev_fmt_profile(
        context, id, &attr, MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_MODE |
                                MRC_CTL_EV_FMT_PROFILE_OP);
}

static int format_state(uint64_t id, int state) {
    struct mrc_ctl_ev_fmt_profile_attr attr = {.profile_state = state};
    return mrc_ctl_modify_ev_fmt_profile(context, id, &attr, MRC_CTL_EV_FMT_PROFILE_STATE);
}

static void formats(void) {
    FAILS(EINVAL, format(FORMAT, MRC_CTL_PROFILE_ONLINE, MRC_CTL_EV_FMT_MODE_STEV, 16, 16));
    FAILS(EINVAL, format(FORMAT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_EV_FMT_MODE_UDP, 8, 8));
    FAILS(E2BIG, format(FORMAT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_EV_FMT_MODE_STEV, 17, 16));
    FAILS(EINVAL, format(FORMAT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_EV_FMT_MODE_STEV, 0, 16));
    CHECK(!format(FORMAT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_EV_FMT_MODE_STEV, 16, 16));
    CHECK(!format_state(FORMAT, MRC_CTL_PROFILE_ONLINE));
    FAILS(EINVAL, format_state(FORMAT, MRC_CTL_PROFILE_INIT));
    FAILS(EINVAL, format(FORMAT, MRC_CTL_PROFILE_ONLINE, MRC_CTL_EV_FMT_MODE_STEV, 8, 8));
    struct mrc_ctl_ev_fmt_field fields[4];
    struct mrc_ctl_ev_fmt_profile_attr attr = {
        .ev_fmt_op = {MRC_CTL_EV_FMT_OP_QUERY_FIELDS, fields, 1}};
    int mask = MRC_CTL_EV_FMT_PROFILE_STATE | MRC_CTL_EV_FMT_PROFILE_OP;
    FAILS(E2BIG, mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, mask));
    CHECK(attr.ev_fmt_op.fmt_field_count == 2);
    CHECK(!mrc_ctl_query_ev_fmt_profile(context, FORMAT, &attr, mask));
    CHECK(attr.profile_state == MRC_CTL_PROFILE_ONLINE && fields[1].width == 16);
}

static int ev_profile(uint64_t id, int mode, uint64_t format, uint32_t count, uint32_t least) {
    struct mrc_ctl_ev_profile_attr attr = {
        .profile_state = MRC_CTL_PROFILE_OFFLINE, .ev_mode = mode, .ev_fmt_profile_id = format,
        .ev_count = count, .ev_min_active = least, .ev_event_mask = STATES};
    return mrc_ctl_modify_ev_profile(
        context, id, &attr, MRC_CTL_EV_PROFILE_STATE | MRC_CTL_EV_PROFILE_MODE |
                                MRC_CTL_EV_PROFILE_FMT_ID | MRC_CTL_EV_PROFILE_COUNT |
                                MRC_CTL_EV_PROFILE_MIN_ACTIVE | MRC_CTL_EV_PROFILE_EVENT_MASK);
}

static int ev_state(uint64_t id, int state) {
    struct mrc_ctl_ev_profile_attr attr = {.profile_state = state};
    return mrc_ctl_modify_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_STATE);
}

static int operate(uint64_t id, int op, struct mrc_ctl_ev ev, struct mrc_ctl_ev new, int state) {
    struct mrc_ctl_ev_op_entry entry = {.ev = ev, .ev_new = new, .state = state};
    struct mrc_ctl_ev_profile_attr attr = {.ev_op = {op, &entry, 1}};
    return mrc_ctl_modify_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_EV_OP);
}

static int replace(uint64_t id, struct mrc_ctl_ev ev, struct mrc_ctl_ev new) {
    return operate(id, MRC_CTL_EV_OP_REPLACE_EV, ev, new, MRC_CTL_EV_GOOD);
}

static int set_state(uint64_t id, struct mrc_ctl_ev ev, int state) {
    return operate(id, MRC_CTL_EV_OP_MODIFY_EV_STATE, ev, ev, state);
}

static int state_of(uint64_t id, struct mrc_ctl_ev ev) {
    struct mrc_ctl_ev_op_entry entry = {.ev = ev};
    struct mrc_ctl_ev_profile_attr attr = {
        .ev_op = {MRC_CTL_EV_OP_QUERY_EV_STATE, &entry, 1}};
    CHECK(!mrc_ctl_query_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_EV_OP));
    return entry.state;
}

/* How many EVs a profile has; they are stored. */
static int array(uint64_t id, struct mrc_ctl_ev_op_entry *entries, int room) {
    struct mrc_ctl_ev_profile_attr attr = {
        .ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, room}};
    CHECK(!mrc_ctl_query_ev_profile(context, id, &attr, MRC_CTL_EV_PROFILE_EV_OP));
    return attr.ev_op.entry_count;
}

static void explicit_evs(void) {
    struct mrc_ctl_ev none = {.port = 0};
    FAILS(EINVAL, ev_profile(EVS, MRC_CTL_EV_MODE_EXP, 99, 3, 1));
    FAILS(E2BIG, ev_profile(EVS, MRC_CTL_EV_MODE_EXP, FORMAT, 257, 1));
    FAILS(E2BIG, ev_profile(EVS, MRC_CTL_EV_MODE_EXP, FORMAT, 3, 4));
    FAILS(EINVAL, ev_profile(0, MRC_CTL_EV_MODE_EXP, FORMAT, 3, 1));
    CHECK(!ev_profile(EVS, MRC_CTL_EV_MODE_EXP, FORMAT, 3, 1));
    FAILS(EINVAL, ev_state(EVS, MRC_CTL_PROFILE_ONLINE)); /* nothing is populated */
    FAILS(EINVAL, replace(EVS, none, stev(0, 7, 2)));     /* it leads to port 1 */
    FAILS(ENOENT, replace(EVS, stev(5, 5, 1), stev(0, 7, 1)));
    CHECK(!replace(EVS, none, stev(0, 7, 1)) && !replace(EVS, none, stev(1, 7, 2)));
    FAILS(EINVAL, ev_state(EVS, MRC_CTL_PROFILE_ONLINE));
    CHECK(!replace(EVS, none, stev(9, 7, 2)) && !ev_state(EVS, MRC_CTL_PROFILE_ONLINE));
    struct mrc_ctl_ev_op_entry entries[4];
    struct mrc_ctl_ev_profile_attr attr = {
        .ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, 2}};
    FAILS(E2BIG, mrc_ctl_query_ev_profile(context, EVS, &attr, MRC_CTL_EV_PROFILE_EV_OP));
    CHECK(attr.ev_op.entry_count == 3 && array(EVS, entries, 4) == 3);
    CHECK(entries[2].ev.port == 2 && entries[2].state == MRC_CTL_EV_GOOD);
    CHECK(attr.ev_event_mask == STATES && attr.ev_min_active == 1);
    FAILS(EINVAL, mrc_ctl_query_ev_profile(context, EVS, &attr, MRC_CTL_EV_PROFILE_EV_OP |
                                                            MRC_CTL_EV_PROFILE_EV_FIELDS_OP));
}

static void generated_evs(void) {
    struct mrc_ctl_ev_field fields[] = {{16, 0, 0, 15, 0xf}, {16, 0x700, 1, 2, 0x3}}, got[2];
    struct mrc_ctl_ev_profile_attr attr = {.ev_fields_op = {
        MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, fields, 2}};
    CHECK(!ev_profile(GENERATED, MRC_CTL_EV_MODE_GEN, FORMAT, 8, 2));
    int mask = MRC_CTL_EV_PROFILE_EV_FIELDS_OP;
    fields[0].max_val = 16; /* wider than the mask */
    FAILS(EINVAL, mrc_ctl_modify_ev_profile(context, GENERATED, &attr, mask));
    fields[0].max_val = 15;
    CHECK(!mrc_ctl_modify_ev_profile(context, GENERATED, &attr, mask));
    CHECK(!ev_state(GENERATED, MRC_CTL_PROFILE_ONLINE));
    attr.ev_fields_op.op = MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS;
    attr.ev_fields_op.fields = got;
    CHECK(!mrc_ctl_query_ev_profile(context, GENERATED, &attr, mask));
    CHECK(!memcmp(fields, got, sizeof got));
    struct mrc_ctl_ev_op_entry entries[8];
    CHECK(array(GENERATED, entries, 8) == 8);
    for (int i = 0; i < 8; i++) {
        uint32_t value;
        memcpy(&value, entries[i].ev.val, sizeof value);
        CHECK(value >> 16 < 16 && ((value & 0xffff) == 0x701 || (value & 0xffff) == 0x702));
        CHECK(entries[i].ev.port == (int)(value >> 16 & 7) % 2 + 1);
    }
}

/* This host is h0, whose T0 is number 0: a path over T1 number 1 of each plane. */
static void srv6_evs(void) {
    CHECK(!format(FORMAT + 1, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_EV_FMT_MODE_SRV6, 32, 32));
    CHECK(!format_state(FORMAT + 1, MRC_CTL_PROFILE_ONLINE));
    CHECK(!ev_profile(SRV6, MRC_CTL_EV_MODE_EXP, FORMAT + 1, 2, 1));
    struct mrc_ctl_ev none = {.port = 0};
    for (int plane = 0; plane < 2; plane++) {
        struct mrc_ctl_ev ev = {.val = {0x5f, 0, 0, 0, 0x10 | plane << 1, 0, 0x20 | plane << 1, 1},
                                .port = plane + 1};
        CHECK(!replace(SRV6, none, ev));
    }
    CHECK(!ev_state(SRV6, MRC_CTL_PROFILE_ONLINE));
}

static int cc(uint64_t id, int state, const char *algorithm, const void *config, int mask) {
    struct mrc_ctl_cc_profile_attr attr = {
        .profile_state = state, .algorithm = algorithm, .cc_config = config};
    return mrc_ctl_modify_cc_profile(context, id, &attr, mask);
}

static void congestion_control(void) {
    int make = MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_ALGORITHM;
    int use = MRC_CTL_CC_PROFILE_STATE | MRC_CTL_CC_PROFILE_CONFIG;
    struct mrc_ctl_cc_nscc_cfg nscc, got;
    struct mrc_ctl_cc_profile_attr attr = {.cc_config = &nscc};
    CHECK(!mrc_ctl_query_cc_profile(context, 0, &attr, use | make));
    CHECK(attr.profile_state == MRC_CTL_PROFILE_ONLINE && nscc.max_cwnd > 4096);
    CHECK(!strcmp(attr.algorithm, "uet-1.0-nscc"));
    FAILS(EINVAL, cc(CC, MRC_CTL_PROFILE_OFFLINE, "dcqcn", NULL, make));
    CHECK(!cc(CC, MRC_CTL_PROFILE_OFFLINE, "uet-1.0-nscc", NULL, make));
    nscc.max_cwnd = 100; /* less than a packet */
    FAILS(EINVAL, cc(CC, MRC_CTL_PROFILE_ONLINE, NULL, &nscc, use));
    nscc.max_cwnd = 8 * 4096;
    nscc.gamma = 0.0 / 0.0;
    FAILS(EINVAL, cc(CC, MRC_CTL_PROFILE_ONLINE, NULL, &nscc, use));
    nscc.gamma = 0.5;
    CHECK(!cc(CC, MRC_CTL_PROFILE_ONLINE, NULL, &nscc, use));
    attr.cc_config = &got;
    CHECK(!mrc_ctl_query_cc_profile(context, CC, &attr, use | make));
    CHECK(got.max_cwnd == 8 * 4096 && got.gamma == 0.5f);
    CHECK(!cc(OFF, MRC_CTL_PROFILE_OFFLINE, NULL, NULL, make));
    CHECK(!cc(OFF, MRC_CTL_PROFILE_ONLINE, NULL, NULL, use));
    attr.cc_config = NULL;
    CHECK(!mrc_ctl_query_cc_profile(context, OFF, &attr, make) && !attr.algorithm);
}

static void probes(const union ibv_gid *gid) {
    struct mrc_ctl_ep_req requests[3] = {{.req_id = 7}, {.req_id = 8}, {.req_id = 9}};
    struct mrc_ctl_ep_rsp responses[3];
    int count, plane = 0;
    for (int i = 0; i < 3; i++, plane ^= 1) {
        requests[i].sgid = requests[i].dgid = *gid;
        requests[i].ev_fmt_mode = MRC_CTL_EV_FMT_MODE_STEV;
        requests[i].req_ev = stev(plane, i, plane + 1);
    }
    int type = MRC_CTL_EP_OP_EV_PROBE;
    CHECK(!mrc_ctl_ep_batch_send_wait(context, 0, type, requests, 3, 4000000000u, responses,
                                      &count));
    CHECK(count == 3);
    for (int i = 0; i < 3; i++)
        CHECK(responses[i].req_id >= 7 && responses[i].rtt > 1000 && responses[i].port >= 1);
    FAILS(ETIMEDOUT, mrc_ctl_ep_batch_send_wait(context, 0, type, requests, 3, 1000, responses,
                                                &count));
    CHECK(!count);
    requests[1].req_ev.port = 1; /* it leads to the other one */
    FAILS(EINVAL, mrc_ctl_ep_batch_send_wait(context, 0, type, requests, 3, 1000, responses,
                                             &count));
    FAILS(ENOTSUP, mrc_ctl_ep_batch_send_wait(context, 0, MRC_CTL_EP_OP_PORT_STATUS_UPDATE,
                                              requests, 1, 1000, responses, &count));
}

/* Queue pairs to the own host that use profiles of EVs and congestion control. */
static void use(struct ibv_context *verbs, const union ibv_gid *gid, uint64_t evs, uint64_t cc_id) {
    struct ibv_pd *pd = ibv_alloc_pd(verbs);
    char *memory = calloc(1, SIZE);
    struct ibv_mr *mr =
        ibv_reg_mr(pd, memory, SIZE, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE);
    struct mrc_cq *cq = mrc_create_cq(context, 16, NULL, NULL, 0);
    struct mrc_qp *a = make_mrc_qp(context, pd, cq, cq), *b = make_mrc_qp(context, pd, cq, cq);
    uint32_t a_number, b_number;
    CHECK(!mrc_get_qpn(a, &a_number) && !mrc_get_qpn(b, &b_number));
    struct mrc_qp_attr attr = {.profile = {evs, cc_id}};
    int profiles = MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID;
    connect_mrc_qp(a, gid, b_number, &attr, profiles, 0, 0);
    connect_mrc_qp(b, gid, a_number, &attr, profiles, 0, 0);
    struct mrc_qp_attr other = {.profile = {evs == EVS ? SRV6 : EVS, cc_id}};
    CHECK(mrc_modify_qp(a, NULL, 0, &other, profiles) == EINVAL); /* too late */
    strcpy(memory, "by the EVs of a profile");
    CHECK(!post_mrc_write(a, 1, mr, SIZE / 2, SIZE / 2, IBV_WR_RDMA_WRITE));
    mrc_succeeds(cq, 1);
    CHECK(!memcmp(memory, memory + SIZE / 2, 100));
    if (evs)
        FAILS(EBUSY, ev_state(evs, MRC_CTL_PROFILE_OFFLINE));
    if (cc_id)
        FAILS(EBUSY, cc(cc_id, MRC_CTL_PROFILE_OFFLINE, NULL, NULL, MRC_CTL_CC_PROFILE_STATE));
    if (evs == EVS) {
        struct mrc_ctl_ev first = stev(0, 7, 1), second = stev(1, 7, 2), third = stev(9, 7, 2);
        CHECK(state_of(evs, first) == MRC_CTL_EV_GOOD);
        CHECK(!set_state(evs, first, MRC_CTL_EV_DENIED) && !set_state(evs, second, 4));
        CHECK(state_of(evs, first) == MRC_CTL_EV_DENIED && state_of(evs, second) == 4);
        FAILS(EINVAL, set_state(evs, third, MRC_CTL_EV_DENIED)); /* the last */
        FAILS(EINVAL, set_state(evs, third, MRC_CTL_EV_ASSUMED_BAD));
        FAILS(ENOENT, set_state(evs, stev(3, 3, 2), MRC_CTL_EV_DENIED));
        FAILS(EINVAL, replace(evs, third, stev(0, 9, 1))); /* of another port */
        CHECK(!replace(evs, second, stev(1, 9, 2)));
        CHECK(!set_state(evs, first, MRC_CTL_EV_GOOD));
        CHECK(state_of(evs, first) != MRC_CTL_EV_DENIED); /* it must answer probes first */
        CHECK(!post_mrc_write(a, 2, mr, SIZE / 2, SIZE / 2, IBV_WR_RDMA_WRITE));
        mrc_succeeds(cq, 2);
    } else if (!evs) { /* the NIC's own choice has EVs as well, which can be denied */
        struct mrc_ctl_ev_op_entry entries[256];
        int count = array(0, entries, 256);
        CHECK(count == 4 && !set_state(0, entries[0].ev, MRC_CTL_EV_DENIED));
        CHECK(state_of(0, entries[0].ev) == MRC_CTL_EV_DENIED);
        CHECK(!set_state(0, entries[0].ev, MRC_CTL_EV_GOOD));
        FAILS(EINVAL, replace(0, entries[0].ev, stev(0, 9, 1)));
    }
    CHECK(!mrc_destroy_qp(a) && !mrc_destroy_qp(b) && !mrc_destroy_cq(cq));
    CHECK(!ibv_dereg_mr(mr) && !ibv_dealloc_pd(pd));
    free(memory);
}

/* A port that is disabled takes its EVs with it: events, and those for which there is no room. */
static void events(struct ibv_context *verbs, const union ibv_gid *gid, size_t size) {
    struct mrc_comp_channel *channel;
    CHECK(!mrc_create_comp_channel(context, &channel));
    struct mrc_cq *cq = mrc_ctl_create_ev_event_cq(context, 1, NULL, channel, 0);
    CHECK(cq && !mrc_req_notify_cq(cq, 0));
    struct ibv_pd *pd = ibv_alloc_pd(verbs);
    struct mrc_cq *sends = mrc_create_cq(context, 4, NULL, NULL, 0);
    struct mrc_qp *a = make_mrc_qp(context, pd, sends, sends);
    uint32_t number;
    CHECK(!mrc_get_qpn(a, &number));
    struct mrc_qp_attr attr = {.profile = {EVS, 0}};
    connect_mrc_qp(a, gid, number, &attr, MRC_QP_EV_PROFILE_ID | MRC_QP_CC_PROFILE_ID, 0, 0);
    unsigned char got[2 * sizeof(struct mrc_ctl_ev_event)];
    CHECK(!mrc_ctl_poll_ev_event(cq, 2, (void *)got));
    CHECK(!set_port(2, 0));
    struct mrc_cq *ready;
    void *argument;
    CHECK(!mrc_get_cq_event(channel, &ready, &argument) && ready == cq);
    mrc_ack_cq_events(cq, 1);
    struct mrc_ctl_ev_event event = {0};
    CHECK(mrc_ctl_poll_ev_event(cq, 2, (void *)got) == 1); /* two EVs, room for one */
    memcpy(&event, got, size);
    CHECK(event.profile_id == EVS && event.ev.port == 2 && !event.drop_count);
    CHECK(size < sizeof event || event.state == MRC_CTL_EV_ASSUMED_BAD);
    CHECK(!set_port(2, 1));
    time_t end = time(NULL) + ANSWER_S;
    while (!mrc_ctl_poll_ev_event(cq, 1, (void *)got))
        CHECK(time(NULL) < end);
    memcpy(&event, got, size);
    CHECK(event.drop_count == 1 && (size < sizeof event || event.state == MRC_CTL_EV_GOOD));
    CHECK(!mrc_destroy_qp(a) && !mrc_destroy_cq(sends) && !mrc_destroy_cq(cq));
    CHECK(!ibv_dealloc_pd(pd) && !mrc_destroy_comp_channel(channel));
    struct mrc_async_event port;
    for (int i = 0; i < 2; i++)
        CHECK(!mrc_get_async_event(context, &port));
}

/* Who lacks CAP_NET_ADMIN may look at the device, and at nothing else. */
static void unprivileged(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    CHECK(!syscall(SYS_capget, &header, sets));
    sets[0].effective &= ~(1u << CAP_NET_ADMIN);
    CHECK(!syscall(SYS_capset, &header, sets));
    struct mrc_ctl_port_attr attr = {0};
    FAILS(EPERM, mrc_ctl_query_port(context, 1, &attr, MRC_CTL_PORT_ADMIN_STATE));
    FAILS(EPERM, set_port(1, 0));
    FAILS(EPERM, ev_state(EVS, MRC_CTL_PROFILE_OFFLINE));
    sets[0].effective |= 1u << CAP_NET_ADMIN;
    CHECK(!syscall(SYS_capset, &header, sets));
}

int main(void) {
    struct ibv_context *verbs = open_mrc0();
    context = mrc_create_context(verbs, NULL);
    union ibv_gid gid;
    CHECK(context && !ibv_query_gid(verbs, 1, 0, &gid));
    device(verbs);
    unprivileged();
    ports(verbs);
    formats();
    explicit_evs();
    generated_evs();
    srv6_evs();
    congestion_control();
    probes(&gid);
    use(verbs, &gid, 0, 0);
    use(verbs, &gid, EVS, CC);
    use(verbs, &gid, GENERATED, OFF);
    use(verbs, &gid, SRV6, 0);
    FAILS(EBUSY, format_state(FORMAT, MRC_CTL_PROFILE_OFFLINE));
    events(verbs, &gid, sizeof(struct mrc_ctl_ev_event));
    CHECK(!mrc_destroy_context(context));
    struct mrc_context_attr older = {.mrc_api_version_used = MRC_API_VER(1, 0, 0)};
    context = mrc_create_context(verbs, &older);
    events(verbs, &gid, offsetof(struct mrc_ctl_ev_event, state));

    uint64_t all[] = {EVS, GENERATED, SRV6};
    for (int i = 0; i < 3; i++)
        CHECK(!ev_state(all[i], MRC_CTL_PROFILE_OFFLINE) && !ev_state(all[i], 0));
    for (int i = 0; i < 2; i++)
        CHECK(!format_state(FORMAT + i, MRC_CTL_PROFILE_OFFLINE) && !format_state(FORMAT + i, 0));
    for (int i = CC; i <= OFF; i++)
        CHECK(!cc(i, MRC_CTL_PROFILE_OFFLINE, NULL, NULL, 1) && !cc(i, 0, NULL, NULL, 1));
    struct mrc_ctl_device_attr attr;
    CHECK(!mrc_ctl_query_device(verbs, &attr) && attr.ev.ev_free_count == attr.ev.ev_max_count);
    CHECK(!mrc_destroy_context(context) && !ibv_close_device(verbs));
    puts("done");
    return 0;
}
