/* OCP's functions for controllers. */
#include "ocp.h"

/* The call fails with -1 and this errno. */
#define FAILS(error, call)               \
    do {                                 \
        errno = 0;                       \
        CHECK((call) == -1);             \
        CHECK(errno == (error));         \
    } while (0)

int mrc_ctl_query_device_ex(struct ibv_context *, struct mrc_context *,
                            struct mrc_ctl_device_attr *, int *);
int mrc_ctl_query_device(struct ibv_context *, struct mrc_ctl_device_attr *);
void mrc_ctl_query_version(uint32_t *, uint32_t *, uint32_t *, uint32_t *);
int mrc_ctl_query_port(struct mrc_context *, uint8_t, struct mrc_ctl_port_attr *, int);
int mrc_ctl_modify_port(struct mrc_context *, uint8_t, struct mrc_ctl_port_attr *, int);
int mrc_ctl_modify_ev_fmt_profile(struct mrc_context *, uint64_t,
                                  struct mrc_ctl_ev_fmt_profile_attr *, int);
int mrc_ctl_query_ev_fmt_profile(struct mrc_context *, uint64_t,
                                 struct mrc_ctl_ev_fmt_profile_attr *, int);
int mrc_ctl_modify_ev_profile(struct mrc_context *, uint64_t, struct mrc_ctl_ev_profile_attr *,
                              int);
int mrc_ctl_query_ev_profile(struct mrc_context *, uint64_t, struct mrc_ctl_ev_profile_attr *, int);
int mrc_ctl_modify_cc_profile(struct mrc_context *, uint64_t, struct mrc_ctl_cc_profile_attr *,
                              int);
int mrc_ctl_query_cc_profile(struct mrc_context *, uint64_t, struct mrc_ctl_cc_profile_attr *, int);
struct mrc_cq *mrc_ctl_create_ev_event_cq(struct mrc_context *, int, void *,
                                          struct mrc_comp_channel *, int);
int mrc_ctl_poll_ev_event(struct mrc_cq *, int, struct mrc_ctl_ev_event *);
int mrc_ctl_ep_batch_send_wait(struct mrc_context *, uint8_t, int, struct mrc_ctl_ep_req *, int,
                               uint32_t, struct mrc_ctl_ep_rsp *, int *);
