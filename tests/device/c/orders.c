/* orders evs|ports|deny N|allow N|disable N|enable N: a controller's orders, from a prompt. */
#include "ctl.h"

enum { MOST = 256 };

int main(int count, char **arguments) {
    struct ibv_context *verbs = open_mrc0();
    struct mrc_context *context = mrc_create_context(verbs, NULL);
    const char *order = count > 1 ? arguments[1] : "";
    int number = count > 2 ? atoi(arguments[2]) : 0;
    struct mrc_ctl_ev_op_entry entries[MOST];
    struct mrc_ctl_ev_profile_attr attr = {
        .ev_op = {MRC_CTL_EV_OP_QUERY_EV_ARRAY, entries, MOST}};
    CHECK(!mrc_ctl_query_ev_profile(context, 0, &attr, MRC_CTL_EV_PROFILE_EV_OP));
    if (!strcmp(order, "deny") || !strcmp(order, "allow")) {
        CHECK(number < attr.ev_op.entry_count);
        entries[number].state = *order == 'd' ? MRC_CTL_EV_DENIED : MRC_CTL_EV_GOOD;
        attr.ev_op.op = MRC_CTL_EV_OP_MODIFY_EV_STATE;
        attr.ev_op.entries = &entries[number];
        attr.ev_op.entry_count = 1;
        CHECK(!mrc_ctl_modify_ev_profile(context, 0, &attr, MRC_CTL_EV_PROFILE_EV_OP));
    } else if (!strcmp(order, "disable") || !strcmp(order, "enable")) {
        struct mrc_ctl_port_attr port = {*order == 'e'};
        CHECK(!mrc_ctl_modify_port(context, number, &port, MRC_CTL_PORT_ADMIN_STATE));
    }
    if (!strcmp(order, "evs"))
        for (int i = 0; i < attr.ev_op.entry_count; i++) {
            uint32_t value;
            memcpy(&value, entries[i].ev.val, sizeof value);
            printf("EV %#010x port %d state %d\n", value, entries[i].ev.port, entries[i].state);
        }
    for (int i = 1; !strcmp(order, "ports") && i <= 2; i++) {
        struct mrc_ctl_port_attr port;
        CHECK(!mrc_ctl_query_port(context, i, &port, MRC_CTL_PORT_ADMIN_STATE));
        printf("port %d state %d\n", i, port.port_admin_state);
    }
    CHECK(!mrc_destroy_context(context) && !ibv_close_device(verbs));
    return 0;
}
