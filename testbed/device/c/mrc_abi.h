/* OCP's interfaces for MRC programs and controllers, as far as a compiled program can see them.
 *
 * Written from the interface's facts: names, order and types of fields, values. Nothing of OCP's
 * files is here; scripts/ocp_abi.py compares every size, offset and value with a copy of them.
 * An enum of theirs is an int here.
 */
#ifndef MRC_ABI_H
#define MRC_ABI_H

#ifndef INFINIBAND_VERBS_H /* the test programs have the real one */
#include "verbs_abi.h"
#endif

/* Major, minor and subminor version. */
#define MRC_API_VER(major, minor, sub) ((uint32_t)(major) << 24 | (minor) << 16 | (sub))

enum { MRC_MAX_VENDOR_CFG_SIZE = 128, MRC_CTL_MAX_VENDOR_CFG_SIZE = 128,
       MRC_CTL_EV_MAX_BYTES = 32 };

/* ---- programs --------------------------------------------------------------------------------- */

struct mrc_context;
struct mrc_comp_channel;
struct mrc_cq;
struct mrc_qp;
struct mrc_qp_hint;

enum { MRC_PROTOCOL_VERSION_0 = 0, MRC_PROTOCOL_VERSION_1 = 1 };
enum { MRC_DEVICE_CAP_TRIM_NACK = 1, MRC_DEVICE_CAP_DYNAMIC_MPR = 2, MRC_DEVICE_CAP_SVC_TIME = 4 };
enum { MRC_QP_CAP_TRIM_NACK_DEST_UNSUPPORTED = 1, MRC_QP_CAP_DYNAMIC_MPR = 2,
       MRC_QP_CAP_SVC_TIME_DEST_UNSUPPORTED = 4 };
enum { MRC_QP_HINT_NUM_QPS_PER_PEER = 1, MRC_QP_HINT_NUM_SEND_PEERS = 2,
       MRC_QP_HINT_NUM_REMOTE_RECV_PEERS = 4, MRC_QP_HINT_VENDOR_CFG = 1 << 31 };
enum { MRC_QP_MAX_WIMM = 1, MRC_QP_MAX_WIMM_DEST = 2, MRC_QP_MPR = 4, MRC_QP_MPR_DEST = 8,
       MRC_QP_TIMEOUT = 16, MRC_QP_EV_PROFILE_ID = 32, MRC_QP_CC_PROFILE_ID = 64, MRC_QP_HINT = 128,
       MRC_QP_RETRY_CNT = 256, MRC_QP_CAP = 512, MRC_QP_VENDOR_CFG = 1 << 31 };

struct mrc_device_attr {
    uint32_t mrc_protocol_version;
    struct {
        uint16_t max_wimm;
        uint16_t max_wimm_dest;
    } wimm_attr;
    struct {
        uint8_t max_mpr; /* units of 128 PSNs */
        uint8_t mpr_resolution;
    } mpr_attr;
    struct {
        uint32_t max_qp_hint;
    } qp_attr;
    uint32_t cap;
};

struct mrc_context_attr {
    uint32_t mrc_api_version_used;
    uint32_t mrc_vendor_api_version_used;
};

struct mrc_qp_hint_attr {
    int num_qps_per_peer;
    int num_send_peers;
    int num_remote_recv_peers;
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_qp_hint_init_attr {
    struct mrc_qp_hint_attr attr;
};

struct mrc_qp_init_attr {
    void *qp_context;
    struct mrc_cq *send_cq;
    struct mrc_cq *recv_cq;
    struct ibv_qp_cap cap;
    int sq_sig_all;
    struct ibv_pd *pd;
    uint64_t send_ops_flags;
    int protocol_version;
};

struct mrc_qp_attr {
    struct {
        uint8_t mpr;
        uint8_t mpr_dest;
    } mpr;
    struct {
        uint16_t max_wimm;
        uint16_t max_wimm_dest;
    } wimm;
    uint8_t timeout;
    struct {
        uint64_t ev_profile_id;
        uint64_t cc_profile_id;
    } profile;
    struct {
        uint8_t linear_cnt;
        uint8_t exp_cnt;
    } retry;
    struct mrc_qp_hint *qp_hint;
    uint32_t cap;
    uint8_t vendor_cfg[MRC_MAX_VENDOR_CFG_SIZE];
};

struct mrc_async_event {
    union {
        struct mrc_cq *cq;
        struct mrc_qp *qp;
        int port_num;
    } element;
    int event_type;
};

/* ---- controllers ------------------------------------------------------------------------------ */

enum { MRC_CTL_PROTOCOL_VERSION_0 = 0, MRC_CTL_PROTOCOL_VERSION_1 = 1 };
enum { MRC_CTL_PROFILE_INIT, MRC_CTL_PROFILE_OFFLINE, MRC_CTL_PROFILE_ONLINE };
enum { MRC_CTL_OPT_CAP_EV_PROFILE_MODIFY_ONLINE = 1, MRC_CTL_OPT_CAP_CC_PROFILE_MODIFY_ONLINE = 2,
       MRC_CTL_OPT_CAP_EV_EVENT = 4, MRC_CTL_OPT_CAP_EV_EXPLICIT_RANGE = 8,
       MRC_CTL_OPT_CAP_EV_EVENT_PRECISE_DROP_CNT = 16, MRC_CTL_OPT_CAP_EP_OP_EV_PROBE = 32 };
enum { MRC_CTL_PORT_ADMIN_DISABLED = 0, MRC_CTL_PORT_ADMIN_ENABLED = 1 };
enum { MRC_CTL_PORT_ADMIN_STATE = 1 };
enum { MRC_CTL_EV_FMT_MODE_STEV = 1, MRC_CTL_EV_FMT_MODE_SRV6 = 2, MRC_CTL_EV_FMT_MODE_UDP = 4 };
enum { MRC_CTL_EV_FMT_OP_MODIFY_FIELDS, MRC_CTL_EV_FMT_OP_QUERY_FIELDS };
enum { MRC_CTL_EV_FMT_PROFILE_STATE = 1, MRC_CTL_EV_FMT_PROFILE_CUR_STATE = 2,
       MRC_CTL_EV_FMT_PROFILE_MODE = 4, MRC_CTL_EV_FMT_PROFILE_OP = 8,
       MRC_CTL_EV_FMT_VENDOR_CFG = 1 << 31 };
enum { MRC_CTL_EV_GOOD = 1, MRC_CTL_EV_ASSUMED_BAD = 2, MRC_CTL_EV_DENIED = 4,
       MRC_CTL_EV_UNKNOWN = 1 << 31 };
enum { MRC_CTL_EV_MODE_AUTO = 1, MRC_CTL_EV_MODE_EXP = 2, MRC_CTL_EV_MODE_GEN = 4 };
enum { MRC_CTL_EV_OP_REPLACE_EV, MRC_CTL_EV_OP_MODIFY_EV_STATE, MRC_CTL_EV_OP_QUERY_EV_STATE,
       MRC_CTL_EV_OP_QUERY_EV_ARRAY };
enum { MRC_CTL_EV_FIELDS_OP_MODIFY_FIELDS, MRC_CTL_EV_FIELDS_OP_QUERY_FIELDS };
enum { MRC_CTL_EV_OP_F_ALL_COPIES = 1 };
enum { MRC_CTL_EV_PROFILE_STATE = 1, MRC_CTL_EV_PROFILE_CUR_STATE = 2, MRC_CTL_EV_PROFILE_MODE = 4,
       MRC_CTL_EV_PROFILE_FMT_ID = 8, MRC_CTL_EV_PROFILE_COUNT = 16,
       MRC_CTL_EV_PROFILE_MIN_ACTIVE = 32, MRC_CTL_EV_PROFILE_EVENT_MASK = 64,
       MRC_CTL_EV_PROFILE_EV_OP = 128, MRC_CTL_EV_PROFILE_EV_FIELDS_OP = 256,
       MRC_CTL_EV_PROFILE_VENDOR_CFG = 1 << 31 };
enum { MRC_CTL_CC_PROFILE_STATE = 1, MRC_CTL_CC_PROFILE_CUR_STATE = 2,
       MRC_CTL_CC_PROFILE_ALGORITHM = 4, MRC_CTL_CC_PROFILE_CONFIG = 8,
       MRC_CTL_CC_PROFILE_VENDOR_CFG = 1 << 31 };
enum { MRC_CTL_EP_OP_EV_PROBE, MRC_CTL_EP_OP_PORT_STATUS_UPDATE };

struct mrc_ctl_device_attr {
    uint32_t mrc_ctl_protocol_version;
    struct {
        uint32_t ev_max_fmt_profiles;
        uint32_t ev_max_profiles;
        uint32_t ev_max_count;
        uint32_t ev_free_count;
        uint32_t ev_max_count_profile;
        uint32_t ev_count_align;
        uint32_t ev_max_width;
        uint32_t ev_fmt_mode_mask;
        uint32_t ev_mode_mask;
        uint32_t ev_op_max_entries;
    } ev;
    struct {
        uint32_t cc_max_profiles;
        const char **algorithms;
    } cc;
    uint32_t phy_port_mask;
    uint32_t opt_attr;
};

struct mrc_ctl_port_attr {
    int port_admin_state;
};

struct mrc_ctl_ev_fmt_field {
    uint8_t width;
};

struct mrc_ctl_ev_fmt_profile_attr {
    int profile_state;
    int cur_profile_state;
    int ev_fmt_mode;
    struct {
        int op;
        struct mrc_ctl_ev_fmt_field *fmt_fields;
        int fmt_field_count;
    } ev_fmt_op;
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

struct mrc_ctl_ev {
    uint8_t val[MRC_CTL_EV_MAX_BYTES];
    uint8_t port;
};

struct mrc_ctl_ev_field {
    uint32_t width;
    uint32_t init_val;
    uint32_t min_val;
    uint32_t max_val;
    uint32_t mask;
};

struct mrc_ctl_ev_op_entry {
    struct mrc_ctl_ev ev;
    struct mrc_ctl_ev ev_new;
    int state;
    uint32_t flags;
};

struct mrc_ctl_ev_profile_attr {
    int profile_state;
    int cur_profile_state;
    int ev_mode;
    uint64_t ev_fmt_profile_id;
    uint32_t ev_count;
    uint32_t ev_min_active;
    int ev_event_mask;
    struct {
        int op;
        struct mrc_ctl_ev_op_entry *entries;
        int entry_count;
    } ev_op;
    struct {
        int op;
        struct mrc_ctl_ev_field *fields;
        int field_count;
    } ev_fields_op;
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

struct mrc_ctl_cc_profile_attr {
    int profile_state;
    int cur_profile_state;
    const char *algorithm;
    const void *cc_config;
    uint8_t vendor_cfg[MRC_CTL_MAX_VENDOR_CFG_SIZE];
};

struct mrc_ctl_cc_nscc_cfg {
    uint8_t disable_qa;
    uint32_t adjust_bytes_threshold;
    uint32_t adjust_period_threshold;
    uint32_t base_rtt;
    float eta;
    float fi;
    float fi_scale;
    float gamma;
    float max_md_jump;
    uint32_t max_cwnd;
    uint8_t qa_gate;
    uint32_t qa_threshold;
    uint32_t target_delay;
};

struct mrc_ctl_ev_event {
    uint64_t profile_id;
    struct mrc_ctl_ev ev;
    uint32_t drop_count;
    int state; /* from version 1.0.1 on; before, the structure ends here */
};

struct mrc_ctl_ep_req {
    uint16_t req_id;
    union ibv_gid sgid;
    union ibv_gid dgid;
    int ev_fmt_mode;
    struct mrc_ctl_ev req_ev;
    union {
        struct {
            uint32_t port_status;
        } port_status_update;
    } op;
};

struct mrc_ctl_ep_rsp {
    uint16_t req_id;
    uint8_t port;
    unsigned int rtt;
    uint8_t adj_svc_time;
};

#endif
