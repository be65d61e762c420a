/* The functions of libibverbs that take objects of a device: ours go to device.c, others' to the
 * real library, which never sees ours.
 *
 * Preloaded, this file stands before the real library. As a library with symbol versions
 * (versions.map) it takes the place of it, for programs that load it by its path.
 */
#define _GNU_SOURCE
#include "device.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>

#define EXPORT __attribute__((visibility("default")))

struct ibv_comp_channel;
struct ibv_srq_init_attr;
struct ibv_srq_attr;
struct ibv_ece;
struct ibv_dm;

static void *real(const char *name) {
    static void *library;
    if (!library)
        library = dlopen("libibverbs.so.1", RTLD_LAZY | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

#define REAL(result, name, types) static result(*name) types; \
    if (!name) name = (result(*) types)(uintptr_t)real("ibv_" #name)

/* Where there is no real library, its functions fail. */
#define INT(name, owner, types, arguments)            \
    EXPORT int ibv_##name types {                     \
        if (is_ours(owner))                           \
            return mrc0_##name arguments;              \
        REAL(int, name, types);                       \
        return name ? name arguments : ENOSYS;        \
    }

#define POINTER(type, name, owner, types, arguments)              \
    EXPORT type *ibv_##name types {                               \
        if (is_ours(owner))                                       \
            return mrc0_##name arguments;                         \
        REAL(type *, name, types);                                \
        return name ? name arguments : refuse();                  \
    }

/* What MRC does not have: with our objects it fails as the manual pages say. */
#define NO_INT(name, what, owner, types, arguments)   \
    EXPORT int ibv_##name types {                     \
        if (is_ours(owner))                           \
            return mrc0_lacks(what, EOPNOTSUPP);      \
        REAL(int, name, types);                       \
        return name ? name arguments : ENOSYS;        \
    }

#define NO_POINTER(type, name, what, owner, types, arguments) \
    EXPORT type *ibv_##name types {                           \
        if (is_ours(owner)) {                                 \
            mrc0_lacks(what, EOPNOTSUPP);                     \
            return NULL;                                      \
        }                                                     \
        REAL(type *, name, types);                            \
        return name ? name arguments : refuse();              \
    }

static void *refuse(void) {
    errno = ENOSYS;
    return NULL;
}

static int is_ours(const struct ibv_context *context) {
    return context && mrc0_is_device(context->device);
}

/* ---- devices: ours is listed before the machine's own ---------------------------------------- */

EXPORT struct ibv_device **ibv_get_device_list(int *count) {
    REAL(struct ibv_device **, get_device_list, (int *));
    int others = 0, here = mrc0_is_here();
    struct ibv_device **theirs = get_device_list ? get_device_list(&others) : NULL;
    if (!theirs)
        others = 0; /* no RDMA in this kernel */
    if (!here)
        MRC0_SAY_ONCE("mrc0: no MRC device here: it exists in the hosts of a fabric, as in "
                     "testbed shell: h0 PROGRAM, or testbed device -- PROGRAM");
    /* Before the list, where ibv_free_device_list finds it: the real library's. */
    struct ibv_device **list = calloc(others + here + 2, sizeof *list);
    if (!list)
        return NULL;
    *list++ = (struct ibv_device *)theirs;
    if (here)
        list[0] = &mrc0_device;
    for (int i = 0; i < others; i++)
        list[here + i] = theirs[i];
    if (count)
        *count = here + others;
    return list;
}

EXPORT void ibv_free_device_list(struct ibv_device **list) {
    REAL(void, free_device_list, (struct ibv_device **));
    struct ibv_device **theirs = (struct ibv_device **)list[-1];
    if (theirs && free_device_list)
        free_device_list(theirs);
    free(list - 1);
}

EXPORT const char *ibv_get_device_name(struct ibv_device *device) {
    REAL(const char *, get_device_name, (struct ibv_device *));
    return mrc0_is_device(device) ? device->name : get_device_name ? get_device_name(device) : NULL;
}

EXPORT int ibv_get_device_index(struct ibv_device *device) {
    REAL(int, get_device_index, (struct ibv_device *));
    return mrc0_is_device(device) || !get_device_index ? -1 : get_device_index(device);
}

EXPORT uint64_t ibv_get_device_guid(struct ibv_device *device) {
    REAL(uint64_t, get_device_guid, (struct ibv_device *));
    if (!mrc0_is_device(device))
        return get_device_guid ? get_device_guid(device) : 0;
    struct ibv_context *context = mrc0_open_device(device);
    if (!context)
        return 0;
    struct ibv_device_attr attr;
    mrc0_query_device(context, &attr);
    mrc0_close_device(context);
    return attr.node_guid;
}

EXPORT struct ibv_context *ibv_open_device(struct ibv_device *device) {
    REAL(struct ibv_context *, open_device, (struct ibv_device *));
    if (mrc0_is_device(device))
        return mrc0_open_device(device);
    return open_device ? open_device(device) : refuse();
}

INT(close_device, context, (struct ibv_context *context), (context))

/* ---- what device.c has ------------------------------------------------------------------------ */

INT(query_device, context, (struct ibv_context *context, struct ibv_device_attr *attr),
    (context, attr))
INT(query_port, context,
    (struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr), (context, port, attr))
INT(query_gid, context,
    (struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid),
    (context, port, index, gid))
INT(query_pkey, context,
    (struct ibv_context *context, uint8_t port, int index, uint16_t *pkey),
    (context, port, index, pkey))
INT(get_pkey_index, context, (struct ibv_context *context, uint8_t port, uint16_t pkey),
    (context, port, pkey))
POINTER(struct ibv_pd, alloc_pd, context, (struct ibv_context *context), (context))
INT(dealloc_pd, pd->context, (struct ibv_pd *pd), (pd))
INT(dereg_mr, mr->context, (struct ibv_mr *mr), (mr))
INT(rereg_mr, mr->context,
    (struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length, int access),
    (mr, flags, pd, address, length, access))
POINTER(struct ibv_comp_channel, create_comp_channel, context, (struct ibv_context *context),
        (context))
INT(destroy_comp_channel, channel->context, (struct ibv_comp_channel *channel), (channel))
POINTER(struct ibv_cq, create_cq, context,
        (struct ibv_context *context, int cqe, void *cq_context, struct ibv_comp_channel *channel,
         int vector),
        (context, cqe, cq_context, channel, vector))
INT(resize_cq, cq->context, (struct ibv_cq *cq, int cqe), (cq, cqe))
INT(destroy_cq, cq->context, (struct ibv_cq *cq), (cq))
INT(get_cq_event, channel->context,
    (struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context),
    (channel, cq, cq_context))
POINTER(struct ibv_qp, create_qp, pd->context, (struct ibv_pd *pd, struct ibv_qp_init_attr *init),
        (pd, init))
INT(modify_qp, qp->context, (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask),
    (qp, attr, mask))
INT(query_qp, qp->context,
    (struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask, struct ibv_qp_init_attr *init),
    (qp, attr, mask, init))
INT(destroy_qp, qp->context, (struct ibv_qp *qp), (qp))
INT(get_async_event, context, (struct ibv_context *context, struct ibv_async_event *event),
    (context, event))

EXPORT void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int count) {
    REAL(void, ack_cq_events, (struct ibv_cq *, unsigned int));
    if (is_ours(cq->context))
        mrc0_ack_cq_events(cq, count);
    else if (ack_cq_events)
        ack_cq_events(cq, count);
}

/* The context stands at the beginning of whatever the event is of. */
EXPORT void ibv_ack_async_event(struct ibv_async_event *event) {
    REAL(void, ack_async_event, (struct ibv_async_event *));
    int type = event->event_type;
    int has_queue = type <= IBV_EVENT_COMM_EST || type == IBV_EVENT_QP_LAST_WQE_REACHED;
    if (has_queue && is_ours(event->element.cq->context))
        mrc0_ack_async_event(event);
    else if (ack_async_event)
        ack_async_event(event);
}

EXPORT struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *address, size_t length, int access) {
    REAL(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *, size_t, int));
    if (is_ours(pd->context))
        return mrc0_reg_mr(pd, address, length, (uintptr_t)address, access);
    return reg_mr ? reg_mr(pd, address, length, access) : refuse();
}

EXPORT struct ibv_mr *ibv_reg_mr_iova(struct ibv_pd *pd, void *address, size_t length,
                                      uint64_t iova, int access) {
    REAL(struct ibv_mr *, reg_mr_iova, (struct ibv_pd *, void *, size_t, uint64_t, int));
    if (is_ours(pd->context))
        return mrc0_reg_mr(pd, address, length, iova, access);
    return reg_mr_iova ? reg_mr_iova(pd, address, length, iova, access) : refuse();
}

EXPORT struct ibv_mr *ibv_reg_mr_iova2(struct ibv_pd *pd, void *address, size_t length,
                                       uint64_t iova, unsigned int access) {
    REAL(struct ibv_mr *, reg_mr_iova2,
         (struct ibv_pd *, void *, size_t, uint64_t, unsigned int));
    if (is_ours(pd->context))
        return mrc0_reg_mr(pd, address, length, iova, access);
    return reg_mr_iova2 ? reg_mr_iova2(pd, address, length, iova, access) : refuse();
}

EXPORT int _ibv_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                             struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
    static int (*theirs)(struct ibv_context *, uint32_t, uint32_t, struct ibv_gid_entry *,
                         uint32_t, size_t);
    if (is_ours(context))
        return mrc0_query_gid_ex(context, port, index, entry, flags, size);
    if (!theirs)
        *(void **)&theirs = real("_ibv_query_gid_ex");
    return theirs ? theirs(context, port, index, entry, flags, size) : ENOSYS;
}

EXPORT ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                                    size_t count, uint32_t flags, size_t size) {
    static ssize_t (*theirs)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t,
                             size_t);
    if (is_ours(context))
        return mrc0_query_gid_table(context, entries, count, flags, size);
    if (!theirs)
        *(void **)&theirs = real("_ibv_query_gid_table");
    return theirs ? theirs(context, entries, count, flags, size) : -ENOSYS;
}

/* Private to rdma-core; ibv_devinfo shows it. 1 is RoCE v2. */
EXPORT int ibv_query_gid_type(struct ibv_context *context, uint8_t port, unsigned int index,
                              int *type) {
    REAL(int, query_gid_type, (struct ibv_context *, uint8_t, unsigned int, int *));
    if (!is_ours(context))
        return query_gid_type ? query_gid_type(context, port, index, type) : -1;
    *type = 1;
    return 0;
}

/* The NIC reads and writes through this process's page tables: a fork changes nothing. */
EXPORT int ibv_fork_init(void) {
    REAL(int, fork_init, (void));
    return fork_init ? fork_init() : 0;
}

EXPORT struct ibv_qp_ex *ibv_qp_to_qp_ex(struct ibv_qp *qp) {
    REAL(struct ibv_qp_ex *, qp_to_qp_ex, (struct ibv_qp *));
    return is_ours(qp->context) || !qp_to_qp_ex ? NULL : qp_to_qp_ex(qp);
}

EXPORT int ibv_query_qp_data_in_order(struct ibv_qp *qp, int opcode, uint32_t flags) {
    REAL(int, query_qp_data_in_order, (struct ibv_qp *, int, uint32_t));
    if (is_ours(qp->context)) /* MRC places packets as they arrive */
        return 0;
    return query_qp_data_in_order ? query_qp_data_in_order(qp, opcode, flags) : 0;
}

/* ---- words: the real library's, for programs that load this one in its place ------------------ */

#define WORD(name)                                     \
    EXPORT const char *ibv_##name(int value) {         \
        REAL(const char *, name, (int));               \
        return name ? name(value) : "unknown";         \
    }

WORD(wc_status_str)
WORD(event_type_str)
WORD(node_type_str)
WORD(port_state_str)

/* ---- what MRC does not have ------------------------------------------------------------------- */

NO_POINTER(struct ibv_mr, reg_dmabuf_mr, "memory of other devices", pd->context,
           (struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access),
           (pd, offset, length, iova, fd, access))
NO_POINTER(struct ibv_pd, import_pd, "imported objects", context,
           (struct ibv_context *context, uint32_t handle), (context, handle))
NO_POINTER(struct ibv_mr, import_mr, "imported objects", pd->context,
           (struct ibv_pd *pd, uint32_t handle), (pd, handle))
NO_POINTER(struct ibv_dm, import_dm, "imported objects", context,
           (struct ibv_context *context, uint32_t handle), (context, handle))
NO_POINTER(struct ibv_srq, create_srq, MRC0_NO_SRQ, pd->context,
           (struct ibv_pd *pd, struct ibv_srq_init_attr *init), (pd, init))
NO_POINTER(struct ibv_ah, create_ah, MRC0_NO_UD, pd->context,
           (struct ibv_pd *pd, struct ibv_ah_attr *attr), (pd, attr))
NO_POINTER(struct ibv_ah, create_ah_from_wc, MRC0_NO_UD, pd->context,
           (struct ibv_pd *pd, struct ibv_wc *wc, void *grh, uint8_t port), (pd, wc, grh, port))
NO_INT(init_ah_from_wc, MRC0_NO_UD, context,
       (struct ibv_context *context, uint8_t port, struct ibv_wc *wc, void *grh,
        struct ibv_ah_attr *attr),
       (context, port, wc, grh, attr))
NO_INT(attach_mcast, "multicast", qp->context,
       (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid))
NO_INT(detach_mcast, "multicast", qp->context,
       (struct ibv_qp *qp, const union ibv_gid *gid, uint16_t lid), (qp, gid, lid))
NO_INT(set_ece, "connection establishment with options (ECE)", qp->context,
       (struct ibv_qp *qp, struct ibv_ece *ece), (qp, ece))
NO_INT(query_ece, "connection establishment with options (ECE)", qp->context,
       (struct ibv_qp *qp, struct ibv_ece *ece), (qp, ece))
NO_INT(resolve_eth_l2_from_gid, "Ethernet addresses", context,
       (struct ibv_context *context, struct ibv_ah_attr *attr, uint8_t *mac, uint16_t *vlan),
       (context, attr, mac, vlan))
