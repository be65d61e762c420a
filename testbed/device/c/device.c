/* The device mrc0 in a program: verbs objects here, the queue pairs themselves in the NIC process.
 *
 * What is rare (making, changing, destroying) is a request to the NIC process over a socket. What
 * is frequent (post_send, post_recv, poll_cq) is an entry of a ring in memory that both share. The
 * payload is not touched here: the NIC process reads and writes the program's memory.
 */
#define _GNU_SOURCE
#include "device.h"
#include "protocol.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 1, FDS = 3, ANSWER_S = 60, EMPTY_POLL_NS = 50 * 1000, DEFAULT_PKEY = 0xffff };
enum { IBV_LINK_UP = 5, IBV_LINK_DISABLED = 3 }; /* physical states: InfiniBand's */
enum { MAX_QPS = 1 << 14, MAX_CQS = 1 << 14, MAX_MRS = 1 << 20, MAX_PDS = 1 << 14 };

#define load(place) __atomic_load_n(&(place), __ATOMIC_ACQUIRE)
#define store(place, value) __atomic_store_n(&(place), value, __ATOMIC_RELEASE)

struct ibv_device mrc0_device = {
    ._ops = {MRC0_MAGIC},
    .node_type = IBV_NODE_CA,
    .transport_type = IBV_TRANSPORT_IB, /* RoCE devices say so, too */
    .name = "mrc0",
    .dev_name = "uverbs-mrc0",
};

/* What events name by a cookie, and how many of them the program has and has not acknowledged. */
struct object {
    struct object *next;
    uint64_t cookie;
    unsigned int delivered, acknowledged;
};

/* An opened device. Objects keep it, so that they may be destroyed after it was closed. */
struct nic {
    struct verbs_context extended;
    pid_t owner;
    int socket, doorbell;
    int gone; /* the NIC process has ended, or the program has closed the device */
    int told; /* the event of its end has been delivered */
    int users;
    pthread_mutex_t lock;
    pthread_cond_t acknowledged;
    struct object *objects;
    uint64_t cookies;
    struct mrc_reply about;
    struct payload payload;
};

struct queue {
    struct mrc_ring *ring;
    void *entries;
    uint32_t depth;
    size_t bytes;
    pthread_mutex_t lock;
};

struct channel {
    struct ibv_comp_channel base;
    uint32_t handle;
};

struct cq {
    struct ibv_cq base;
    struct object object;
    struct queue queue;
    size_t event_size; /* of EV events; 0: it is a queue of completions */
};

struct region {
    struct ibv_mr base;
    uint64_t iova;
    unsigned int access;
};

struct qp {
    struct ibv_qp base;
    struct object object;
    struct queue send, recv;
    struct ibv_qp_attr attr;
    struct ibv_qp_init_attr init;
    struct mrc_state mrc;
};

#define OWNER(type, member, pointer) ((type *)((char *)(pointer)-offsetof(type, member)))
#define NIC(pointer) OWNER(struct nic, extended.context, pointer)
#define CQ(pointer) OWNER(struct cq, base, pointer)
#define QP(pointer) OWNER(struct qp, base, pointer)
#define REGION(pointer) OWNER(struct region, base, pointer)

/* A thread that is cancelled while it has a lock would keep it. write(2) and recv(2) of the C library
 * are places for that, the bare calls are none. */
static long write_uncancelled(int fd, const void *data, size_t size) {
    return syscall(SYS_write, fd, data, size);
}

void mrc0_say(const char *format, ...) {
    char line[512];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(line, sizeof line - 1, format, arguments);
    va_end(arguments);
    if (length >= (int)sizeof line - 1)
        length = sizeof line - 2;
    line[length++] = '\n';
    long written = write_uncancelled(STDERR_FILENO, line, length);
    (void)written;
}

static void *refuse(int error) {
    errno = error;
    return NULL;
}

int mrc0_lacks(const char *what, int error) {
    enum { KINDS = 64 };
    static const char *said[KINDS];
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&lock);
    int i = 0;
    while (i < KINDS && said[i] && strcmp(said[i], what))
        i++;
    if (i < KINDS && !said[i]) {
        said[i] = what;
        mrc0_say("mrc0: MRC has no %s", what);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return error;
}

/* ---- the connection to the NIC process ------------------------------------------------------ */

static int connect_to_nic(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const char *own = getenv(MRC_SOCKET_VARIABLE), *name = own ? own : MRC_SOCKET;
    size_t length = strnlen(name, sizeof address.sun_path - 1);
    memcpy(address.sun_path + 1, name, length); /* abstract: it begins with a zero */
    int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -1;
    struct timeval patience = {.tv_sec = ANSWER_S};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience); /* connect(2) waits, too */
    if (connect(fd, (void *)&address, offsetof(struct sockaddr_un, sun_path) + 1 + length)) {
        int error = errno;
        close(fd);
        errno = error;
        return -1;
    }
    return fd;
}

int mrc0_is_here(void) {
    int fd = connect_to_nic();
    if (fd < 0)
        return 0;
    close(fd);
    return 1;
}

static void close_all(int *fds) {
    for (int i = 0; i < FDS; i++) {
        if (fds[i] >= 0)
            close(fds[i]);
        fds[i] = -1;
    }
}

/* Of descriptors all or none arrive: a program that has no more may get a part of them. */
static int receive(int fd, struct mrc_reply *reply, int *fds) {
    char control[CMSG_SPACE(FDS * sizeof(int))];
    struct iovec part = {reply, sizeof *reply};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof control};
    ssize_t size;
    do
        size = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    while (size < 0 && errno == EINTR);
    struct cmsghdr *passed = size > 0 ? CMSG_FIRSTHDR(&message) : NULL;
    if (passed && passed->cmsg_type == SCM_RIGHTS)
        memcpy(fds, CMSG_DATA(passed), passed->cmsg_len - CMSG_LEN(0));
    if (size > 0 && message.msg_flags & MSG_CTRUNC)
        close_all(fds);
    return size == sizeof *reply;
}

/* Whether nothing can be asked any more. A child of fork() has no device: connection, queues and
 * threads are its parent's. */
static int is_lost(struct nic *nic) { return load(nic->gone) || nic->owner != getpid(); }

/* Requests wait for their answers, where a thread may be cancelled, but not with the lock. Returns
 * whether it could be before. */
static int lock_uncancelled(struct nic *nic) {
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    pthread_mutex_lock(&nic->lock);
    return before;
}

static void unlock(struct nic *nic, int before) {
    pthread_mutex_unlock(&nic->lock);
    pthread_setcancelstate(before, NULL);
}

/* Ask the NIC process; returns 0 or an errno. `fds` takes the descriptors of the answer, -1 for
 * those that it does not have. */
static int ask(struct nic *nic, const struct mrc_request *request, struct mrc_reply *reply,
               int *fds) {
    int none[FDS];
    if (!fds)
        fds = none;
    for (int i = 0; i < FDS; i++)
        fds[i] = -1;
    if (is_lost(nic))
        return EIO;
    int error = EIO, before = lock_uncancelled(nic);
    if (!load(nic->gone)) {
        ssize_t sent;
        do
            sent = send(nic->socket, request, sizeof *request, MSG_NOSIGNAL);
        while (sent < 0 && errno == EINTR);
        if (sent == sizeof *request && receive(nic->socket, reply, fds))
            error = reply->error;
        else
            store(nic->gone, 1);
    }
    unlock(nic, before);
    return error;
}

int mrc0_ask(struct ibv_context *context, const struct mrc_request *request,
             struct mrc_reply *reply) {
    return ask(NIC(context), request, reply, NULL);
}

/* The same for what is destroyed: where nothing can be asked, it is destroyed already. */
static int ask_to_destroy(struct nic *nic, uint32_t op, uint32_t handle) {
    struct mrc_request request = {.op = op, .handle = handle};
    struct mrc_reply reply;
    int error = ask(nic, &request, &reply, NULL);
    return error == EIO && is_lost(nic) ? 0 : error;
}

/* Whether the NIC process has ended, or the program has closed the descriptor. */
static int is_gone(struct nic *nic) {
    char byte;
    if (!load(nic->gone)) {
        int look = MSG_PEEK | MSG_DONTWAIT;
        long size = syscall(SYS_recvfrom, nic->socket, &byte, 1, look, NULL, NULL);
        if (!size || (size < 0 && errno != EAGAIN && errno != EINTR))
            store(nic->gone, 1);
    }
    return load(nic->gone);
}

/* Have the NIC forget the program: no WRITE reaches its memory any more when this returns. */
static void leave(struct nic *nic) {
    char byte;
    ssize_t size;
    if (is_lost(nic))
        return;
    int before = lock_uncancelled(nic);
    store(nic->gone, 1);
    if (!shutdown(nic->socket, SHUT_WR))
        do
            size = recv(nic->socket, &byte, 1, 0);
        while (size > 0 || (size < 0 && errno == EINTR));
    unlock(nic, before);
}

static void keep(struct nic *nic) { __atomic_add_fetch(&nic->users, 1, __ATOMIC_ACQ_REL); }

static void release(struct nic *nic) {
    if (__atomic_sub_fetch(&nic->users, 1, __ATOMIC_ACQ_REL))
        return;
    pthread_mutex_destroy(&nic->lock);
    pthread_cond_destroy(&nic->acknowledged);
    free(nic);
}

/* ---- what events name ----------------------------------------------------------------------- */

static void add_object(struct nic *nic, struct object *object) {
    pthread_mutex_lock(&nic->lock);
    object->cookie = ++nic->cookies;
    object->next = nic->objects;
    nic->objects = object;
    pthread_mutex_unlock(&nic->lock);
}

/* Forget an object, once all of its events are acknowledged, as ibv_get_cq_event(3) says. */
static void remove_object(struct nic *nic, struct object *object) {
    if (nic->owner != getpid()) /* a thread of the parent may have had the lock */
        return;
    pthread_mutex_lock(&nic->lock);
    while (object->acknowledged != object->delivered)
        pthread_cond_wait(&nic->acknowledged, &nic->lock);
    struct object **place = &nic->objects;
    while (*place != object)
        place = &(*place)->next;
    *place = object->next;
    pthread_mutex_unlock(&nic->lock);
}

static struct object *deliver(struct nic *nic, uint64_t cookie) {
    pthread_mutex_lock(&nic->lock);
    struct object *object = nic->objects;
    while (object && object->cookie != cookie)
        object = object->next;
    if (object)
        object->delivered++;
    pthread_mutex_unlock(&nic->lock);
    return object;
}

static void acknowledge(struct nic *nic, struct object *object, unsigned int count) {
    pthread_mutex_lock(&nic->lock);
    object->acknowledged += count;
    pthread_cond_broadcast(&nic->acknowledged);
    pthread_mutex_unlock(&nic->lock);
}

/* ---- queues in shared memory ---------------------------------------------------------------- */

static uint32_t depth_for(uint32_t asked) {
    uint32_t depth = 1;
    while (depth < asked)
        depth <<= 1;
    return depth;
}

/* Map a ring of `depth` entries, in place of another; the descriptor is closed. Returns 0 or an
 * errno. */
static int map_ring(struct queue *queue, int fd, uint32_t depth, size_t entry) {
    if (fd < 0)
        return EMFILE;
    size_t bytes = MRC_ENTRIES_OFFSET + depth * entry;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    int error = memory == MAP_FAILED ? errno : 0;
    close(fd);
    if (error)
        return error;
    if (queue->ring)
        munmap(queue->ring, queue->bytes);
    queue->ring = memory;
    queue->entries = (char *)memory + MRC_ENTRIES_OFFSET;
    queue->depth = depth;
    queue->bytes = bytes;
    return 0;
}

static int map_queue(struct queue *queue, int fd, uint32_t depth, size_t entry) {
    int error = map_ring(queue, fd, depth, entry);
    if (!error)
        pthread_mutex_init(&queue->lock, NULL);
    return error;
}

static void unmap_queue(struct queue *queue) {
    if (queue->ring) {
        munmap(queue->ring, queue->bytes);
        pthread_mutex_destroy(&queue->lock);
    }
}

/* Show the NIC what has been put in before `tail`; wake it, if it has taken all that was there. */
static void publish(struct nic *nic, struct queue *queue, uint32_t tail) {
    uint32_t before = queue->ring->tail;
    if (tail == before)
        return;
    store(queue->ring->tail, tail);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    /* A program that has closed all descriptors may have files in their place. */
    if (load(queue->ring->head) == before && !is_gone(nic)) {
        uint64_t one = 1;
        long written = write_uncancelled(nic->doorbell, &one, sizeof one);
        (void)written; /* full: it is about to look */
    }
}

/* ---- work requests and completions ---------------------------------------------------------- */

/* Returns the errno of ibv_post_send(3). */
static int refuse_operation(int opcode) {
    switch (opcode) {
    case IBV_WR_SEND:
    case IBV_WR_SEND_WITH_IMM:
    case IBV_WR_SEND_WITH_INV:
        return mrc0_lacks("SEND; it has WRITE and WRITE with immediate", EINVAL);
    case IBV_WR_RDMA_READ:
        return mrc0_lacks("READ; the peer has to WRITE", EINVAL);
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
        return mrc0_lacks("atomic operations", EINVAL);
    }
    return mrc0_lacks("operations but WRITE and WRITE with immediate", EINVAL);
}

/* Describe a work request to the NIC; returns 0 or an errno. */
static int put_send(struct qp *qp, const struct ibv_send_wr *wr, struct mrc_wqe *entry) {
    if (wr->opcode != IBV_WR_RDMA_WRITE && wr->opcode != IBV_WR_RDMA_WRITE_WITH_IMM)
        return refuse_operation(wr->opcode);
    if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_send_sge)
        return EINVAL;
    uint64_t length = 0;
    for (int i = 0; i < wr->num_sge; i++)
        length += wr->sg_list[i].length;
    int is_inline = (wr->send_flags & IBV_SEND_INLINE) != 0;
    if (length > (is_inline ? qp->init.cap.max_inline_data : MRC_MAX_MESSAGE))
        return EINVAL;
    entry->wr_id = wr->wr_id;
    entry->remote_address = wr->wr.rdma.remote_addr;
    entry->remote_key = wr->wr.rdma.rkey;
    entry->immediate = ntohl(wr->imm_data);
    entry->opcode = wr->opcode;
    entry->flags = wr->send_flags;
    entry->count = is_inline ? length : (uint32_t)wr->num_sge;
    uint8_t *data = entry->data;
    for (int i = 0; i < wr->num_sge; i++) {
        const struct ibv_sge *sge = &wr->sg_list[i];
        if (!is_inline)
            entry->sge[i] = (struct mrc_sge){sge->addr, sge->length, sge->lkey};
        else if (sge->length)
            data = (uint8_t *)memcpy(data, (void *)(uintptr_t)sge->addr, sge->length) + sge->length;
    }
    return 0;
}

static int mrc0_post_send(struct ibv_qp *base, struct ibv_send_wr *wr, struct ibv_send_wr **bad) {
    struct qp *qp = QP(base);
    struct queue *queue = &qp->send;
    int error = 0;
    if (base->state != IBV_QPS_RTS && base->state != IBV_QPS_ERR)
        error = EINVAL;
    else if (is_lost(NIC(base->context)))
        error = EIO;
    if (error) {
        *bad = wr;
        return error;
    }
    pthread_mutex_lock(&queue->lock);
    uint32_t tail = queue->ring->tail;
    for (; wr && !error; wr = wr->next) {
        struct mrc_wqe *entry = (struct mrc_wqe *)queue->entries + tail % queue->depth;
        if (tail - load(queue->ring->done) >= queue->depth)
            error = ENOMEM;
        else
            error = put_send(qp, wr, entry);
        if (error)
            break;
        tail++;
    }
    publish(NIC(base->context), queue, tail);
    pthread_mutex_unlock(&queue->lock);
    if (error)
        *bad = wr;
    return error;
}

/* A receive has no buffer of its own: the peer's WRITE with immediate says where its bytes go. */
static int mrc0_post_recv(struct ibv_qp *base, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad) {
    struct qp *qp = QP(base);
    struct queue *queue = &qp->recv;
    int error = 0;
    if (base->state == IBV_QPS_RESET)
        error = EINVAL;
    else if (is_lost(NIC(base->context)))
        error = EIO;
    if (error) {
        *bad = wr;
        return error;
    }
    pthread_mutex_lock(&queue->lock);
    uint32_t tail = queue->ring->tail;
    for (; wr && !error; wr = wr->next) {
        if (tail - load(queue->ring->done) >= queue->depth)
            error = ENOMEM;
        else if (wr->num_sge < 0 || (uint32_t)wr->num_sge > qp->init.cap.max_recv_sge)
            error = EINVAL;
        if (error)
            break;
        ((uint64_t *)queue->entries)[tail % queue->depth] = wr->wr_id;
        tail++;
    }
    publish(NIC(base->context), queue, tail);
    pthread_mutex_unlock(&queue->lock);
    if (error)
        *bad = wr;
    return error;
}

static int mrc0_poll_cq(struct ibv_cq *base, int count, struct ibv_wc *wc) {
    struct queue *queue = &CQ(base)->queue;
    if (NIC(base->context)->owner != getpid())
        return -1;
    pthread_mutex_lock(&queue->lock);
    uint32_t head = queue->ring->head, tail = load(queue->ring->tail);
    int polled = 0;
    for (; polled < count && head != tail; head++, polled++) {
        const struct mrc_cqe *entry = (struct mrc_cqe *)queue->entries + head % queue->depth;
        wc[polled] = (struct ibv_wc){
            .wr_id = entry->wr_id, .status = entry->status, .opcode = entry->opcode,
            .byte_len = entry->length, .imm_data = htonl(entry->immediate),
            .qp_num = entry->qpn, .wc_flags = entry->flags};
    }
    store(queue->ring->head, head);
    pthread_mutex_unlock(&queue->lock);
    if (!polled && count > 0) {
        if (is_gone(NIC(base->context)))
            return -1;
        /* Time is dilated: nothing completes within this, and the CPU is free for the NIC. */
        nanosleep(&(struct timespec){.tv_nsec = EMPTY_POLL_NS}, NULL);
    }
    return polled;
}

/* MRC does not carry the solicited bit: every receive and every error counts as solicited. */
static int mrc0_req_notify_cq(struct ibv_cq *base, int solicited_only) {
    struct queue *queue = &CQ(base)->queue;
    if (NIC(base->context)->owner != getpid())
        return EIO;
    pthread_mutex_lock(&queue->lock);
    if (!solicited_only)
        store(queue->ring->armed, MRC_ARMED);
    else if (load(queue->ring->armed) != MRC_ARMED) /* any: these are among them */
        store(queue->ring->armed, MRC_ARMED_SOLICITED);
    pthread_mutex_unlock(&queue->lock);
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
    return 0;
}

/* ---- what MRC does not have: operations that programs call through the context --------------- */

#define REFUSE(name, type, what)             \
    static void *name(void *object, type attr) { \
        (void)object, (void)attr;            \
        mrc0_lacks(what, EOPNOTSUPP);        \
        return NULL;                         \
    }

REFUSE(no_windows, int, "memory windows; register the memory")
REFUSE(no_qp_ex, void *, "extended queue pairs (ibv_create_qp_ex); use ibv_create_qp")
REFUSE(no_cq_ex, void *, "extended completion queues (ibv_create_cq_ex); use ibv_create_cq")
REFUSE(no_srq, void *, MRC0_NO_SRQ)
REFUSE(no_xrc, void *, MRC0_NO_XRC)
REFUSE(no_wq, void *, "work queues outside queue pairs")
REFUSE(no_flow, void *, "flow steering")
REFUSE(no_memory, void *, "memory of its own (ibv_alloc_dm)")
REFUSE(no_parent_domain, void *, "parent domains; use ibv_alloc_pd")

static void refuse_extensions(struct verbs_context *extended) {
    extended->create_qp_ex = no_qp_ex;
    extended->create_cq_ex = no_cq_ex;
    extended->create_srq_ex = no_srq;
    extended->open_xrcd = extended->open_qp = no_xrc;
    extended->create_wq = no_wq;
    extended->ibv_create_flow = no_flow;
    extended->alloc_dm = no_memory;
    extended->alloc_parent_domain = no_parent_domain;
    extended->sz = sizeof *extended;
    extended->context.ops.alloc_mw = no_windows;
    extended->context.abi_compat = (void *)UINTPTR_MAX;
}

/* ---- the device ------------------------------------------------------------------------------ */

struct ibv_context *mrc0_open_device(struct ibv_device *device) {
    struct nic *nic = calloc(1, sizeof *nic);
    if (!nic)
        return NULL;
    nic->socket = connect_to_nic();
    if (nic->socket < 0) {
        free(nic);
        return refuse(ENODEV);
    }
    pthread_mutex_init(&nic->lock, NULL);
    pthread_cond_init(&nic->acknowledged, NULL);
    nic->users = 1;
    nic->owner = getpid();
    int fds[FDS];
    uint64_t word = (uintptr_t)nic ^ MRC_VERSION << 1; /* what the NIC reads, if it can */
    struct mrc_request request = {.op = MRC_OPEN, .version = MRC_VERSION,
                                  .address = (uintptr_t)&word, .cookie = word};
    int error = ask(nic, &request, &nic->about, fds);
    if (!error && fds[0] < 0)
        error = EMFILE;
    if (!error && fds[2] >= 0)
        error = mrc0_start_payload(&nic->payload, fds[2]);
    if (error) {
        if (error == EPROTO)
            mrc0_say("mrc0: this library and the NIC of this host are of different versions");
        close_all(fds);
        close(nic->socket);
        release(nic);
        return refuse(error);
    }
    nic->doorbell = fds[0];
    struct ibv_context *context = &nic->extended.context;
    refuse_extensions(&nic->extended);
    context->device = device;
    context->cmd_fd = nic->socket;
    context->async_fd = fds[1];
    context->num_comp_vectors = 1;
    context->ops.poll_cq = mrc0_poll_cq;
    context->ops.req_notify_cq = mrc0_req_notify_cq;
    context->ops.post_send = mrc0_post_send;
    context->ops.post_recv = mrc0_post_recv;
    pthread_mutex_init(&context->mutex, NULL);
    return context;
}

/* Of no interface: testbed/device/client.py asks for it. */
__attribute__((visibility("default"))) int mrc0_report(struct ibv_context *context,
                                                       struct mrc_reply *reply) {
    struct mrc_request request = {.op = MRC_REPORT};
    return ask(NIC(context), &request, reply, NULL);
}

/* What the program measures is emulated time: say what it comes to at full speed. */
static void report(struct nic *nic) {
    struct mrc_reply sent;
    if (mrc0_report(&nic->extended.context, &sent) || !sent.sent_bytes || !sent.time_ns)
        return;
    double dilation = sent.dilation / 1e3, seconds = sent.time_ns / 1e9;
    double gbits = sent.sent_bytes * 8 / seconds * dilation / 1e9;
    if (gbits < 1) /* it measured something else than bandwidth */
        mrc0_say("mrc0: times here are %.6g times as long as at full speed", dilation);
    else
        mrc0_say("mrc0: sent %.4g MB in %.3g s; time runs %.6g times slower here, so at full speed "
                "this is %.4g Gbit/s", sent.sent_bytes / 1e6, seconds, dilation, gbits);
}

int mrc0_close_device(struct ibv_context *context) {
    struct nic *nic = NIC(context);
    report(nic);
    store(nic->told, 1);
    leave(nic);
    mrc0_end_payload(&nic->payload);
    close(nic->socket);
    close(nic->doorbell);
    close(context->async_fd);
    release(nic);
    return 0;
}

int mrc0_query_device(struct ibv_context *context, struct ibv_device_attr *attr) {
    struct nic *nic = NIC(context);
    memset(attr, 0, sizeof *attr);
    snprintf(attr->fw_ver, sizeof attr->fw_ver, "%d", MRC_VERSION);
    attr->node_guid = attr->sys_image_guid = nic->about.guid;
    attr->max_mr_size = UINT64_MAX;
    attr->page_size_cap = 0xfffff000;
    attr->max_qp = MAX_QPS;
    attr->max_qp_wr = MRC_MAX_DEPTH;
    attr->max_sge = MRC_MAX_SGE;
    attr->max_cq = MAX_CQS;
    attr->max_cqe = MRC_MAX_CQE;
    attr->max_mr = MAX_MRS;
    attr->max_pd = MAX_PDS;
    /* MRC has no READ; programs ask for the depth of one all the same, and are not to fail. */
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = 16;
    attr->max_pkeys = 1;
    attr->phys_port_cnt = 1;
    return 0;
}

/* Port 1 is that of verbs, which is up while any plane is, unless a controller has disabled it; each
 * further one is that of a plane. */
int mrc0_query_port(struct ibv_context *context, uint8_t port, struct ibv_port_attr *attr) {
    struct nic *nic = NIC(context);
    if (port < PORT || port > nic->about.planes)
        return EINVAL;
    struct mrc_request request = {.op = MRC_QUERY_PORTS};
    struct mrc_reply reply;
    int error = ask(nic, &request, &reply, NULL);
    if (error)
        return error;
    int up = port == PORT ? reply.state && reply.key & 1 : reply.state >> (port - 1) & 1;
    memset(attr, 0, offsetof(struct ibv_port_attr, port_cap_flags2));
    attr->state = up ? IBV_PORT_ACTIVE : IBV_PORT_DOWN;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->gid_tbl_len = 1;
    attr->max_msg_sz = MRC_MAX_MESSAGE;
    attr->pkey_tbl_len = 1;
    attr->active_width = 2;   /* 4 lanes, as the default fabric has planes, */
    attr->active_speed = 128; /* of 100 Gbit/s: there is no number for other fabrics */
    attr->phys_state = up ? IBV_LINK_UP : IBV_LINK_DISABLED;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return 0;
}

int mrc0_query_gid(struct ibv_context *context, uint8_t port, int index, union ibv_gid *gid) {
    if (port != PORT || index != 0) {
        errno = EINVAL;
        return -1;
    }
    memcpy(gid, NIC(context)->about.gid, sizeof *gid);
    return 0;
}

int mrc0_query_gid_ex(struct ibv_context *context, uint32_t port, uint32_t index,
                     struct ibv_gid_entry *entry, uint32_t flags, size_t size) {
    if (flags)
        return EOPNOTSUPP;
    if (port != PORT || size < sizeof *entry)
        return EINVAL;
    if (index != 0)
        return ENODATA;
    memset(entry, 0, size);
    memcpy(&entry->gid, NIC(context)->about.gid, sizeof entry->gid);
    entry->port_num = PORT;
    entry->gid_type = IBV_GID_TYPE_ROCE_V2;
    return 0;
}

ssize_t mrc0_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries,
                            size_t count, uint32_t flags, size_t size) {
    if (!count)
        return 0;
    int error = mrc0_query_gid_ex(context, PORT, 0, entries, flags, size);
    return error ? -error : 1;
}

int mrc0_query_pkey(struct ibv_context *context, uint8_t port, int index, uint16_t *pkey) {
    (void)context;
    if (port != PORT || index != 0) {
        errno = EINVAL;
        return -1;
    }
    *pkey = DEFAULT_PKEY;
    return 0;
}

int mrc0_get_pkey_index(struct ibv_context *context, uint8_t port, uint16_t pkey) {
    (void)context;
    if (port != PORT || pkey != DEFAULT_PKEY) {
        errno = EINVAL;
        return -1;
    }
    return 0;
}

/* ---- protection domains and memory ----------------------------------------------------------- */

struct ibv_pd *mrc0_alloc_pd(struct ibv_context *context) {
    struct nic *nic = NIC(context);
    struct ibv_pd *pd = calloc(1, sizeof *pd);
    struct mrc_request request = {.op = MRC_ALLOC_PD};
    struct mrc_reply reply;
    int error = pd ? ask(nic, &request, &reply, NULL) : ENOMEM;
    if (error) {
        free(pd);
        return refuse(error);
    }
    *pd = (struct ibv_pd){context, reply.handle};
    keep(nic);
    return pd;
}

int mrc0_dealloc_pd(struct ibv_pd *pd) {
    struct nic *nic = NIC(pd->context);
    int error = ask_to_destroy(nic, MRC_DEALLOC_PD, pd->handle);
    if (error)
        return error;
    free(pd);
    release(nic);
    return 0;
}

/* Whether all pages from `address` on are mapped. */
static int is_mapped(const void *address, size_t length) {
    enum { PAGES = 4096 };
    unsigned char in_core[PAGES];
    uintptr_t page = sysconf(_SC_PAGESIZE), place = (uintptr_t)address & ~(page - 1);
    uintptr_t end = (uintptr_t)address + length;
    if (end < (uintptr_t)address)
        return 0;
    while (place < end) {
        size_t part = end - place < PAGES * page ? end - place : PAGES * page;
        if (mincore((void *)place, part, in_core))
            return 0;
        place += part;
    }
    return 1;
}

struct ibv_mr *mrc0_reg_mr(struct ibv_pd *pd, void *address, size_t length, uint64_t iova,
                          unsigned int access) {
    struct nic *nic = NIC(pd->context);
    access &= ~IBV_ACCESS_OPTIONAL_RANGE;
    if (access & (IBV_ACCESS_ON_DEMAND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_MW_BIND)) {
        mrc0_lacks("memory that is registered on demand, zero-based or for windows", EOPNOTSUPP);
        return NULL;
    }
    if (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC) &&
        !(access & IBV_ACCESS_LOCAL_WRITE))
        return refuse(EINVAL);
    if (!length)
        return refuse(EINVAL);
    if (!is_mapped(address, length))
        return refuse(EFAULT);
    struct region *mr = calloc(1, sizeof *mr);
    struct mrc_request request = {.op = MRC_REG_MR, .handle = pd->handle,
                                  .address = (uintptr_t)address, .length = length,
                                  .iova = iova, .access = access};
    struct mrc_reply reply;
    int error = mr ? ask(nic, &request, &reply, NULL) : ENOMEM;
    if (error) {
        free(mr);
        return refuse(error);
    }
    mr->base = (struct ibv_mr){pd->context, pd, address, length, reply.handle, reply.key,
                               reply.key};
    mr->iova = iova;
    mr->access = access;
    keep(nic);
    return &mr->base;
}

int mrc0_dereg_mr(struct ibv_mr *mr) {
    struct nic *nic = NIC(mr->context);
    int error = ask_to_destroy(nic, MRC_DEREG_MR, mr->handle);
    if (error)
        return error;
    free(REGION(mr));
    release(nic);
    return 0;
}

/* Register the memory anew under the same object: its keys change, as ibv_rereg_mr(3) allows. */
int mrc0_rereg_mr(struct ibv_mr *mr, int flags, struct ibv_pd *pd, void *address, size_t length,
                  int access) {
    int moves = flags & IBV_REREG_MR_CHANGE_TRANSLATION, known = 7;
    if (!flags || flags & ~known ||
        (flags & IBV_REREG_MR_CHANGE_PD && (!pd || pd->context != mr->context)))
        return IBV_REREG_MR_ERR_INPUT;
    if (!(flags & IBV_REREG_MR_CHANGE_PD))
        pd = mr->pd;
    if (!moves) {
        address = mr->addr;
        length = mr->length;
    }
    struct region *region = REGION(mr);
    if (!(flags & IBV_REREG_MR_CHANGE_ACCESS))
        access = region->access;
    uint64_t iova = moves ? (uintptr_t)address : region->iova;
    struct ibv_mr *made = mrc0_reg_mr(pd, address, length, iova, access);
    if (!made)
        return IBV_REREG_MR_ERR_INPUT;
    struct region old = *region;
    *region = *REGION(made);
    *REGION(made) = old;
    return mrc0_dereg_mr(made) ? IBV_REREG_MR_ERR_CMD : 0;
}

/* ---- completion channels and queues ----------------------------------------------------------- */

struct ibv_comp_channel *mrc0_create_comp_channel(struct ibv_context *context) {
    struct nic *nic = NIC(context);
    struct channel *channel = calloc(1, sizeof *channel);
    struct mrc_request request = {.op = MRC_CREATE_CHANNEL};
    struct mrc_reply reply;
    int fds[FDS];
    int error = channel ? ask(nic, &request, &reply, fds) : ENOMEM;
    if (!error && fds[0] < 0) {
        ask_to_destroy(nic, MRC_DESTROY_CHANNEL, reply.handle);
        error = EMFILE;
    }
    if (error) {
        free(channel);
        return refuse(error);
    }
    channel->base = (struct ibv_comp_channel){.context = context, .fd = fds[0]};
    channel->handle = reply.handle;
    keep(nic);
    return &channel->base;
}

int mrc0_destroy_comp_channel(struct ibv_comp_channel *base) {
    struct nic *nic = NIC(base->context);
    struct channel *channel = OWNER(struct channel, base, base);
    if (load(base->refcnt))
        return EBUSY;
    int error = ask_to_destroy(nic, MRC_DESTROY_CHANNEL, channel->handle);
    if (error)
        return error;
    close(base->fd);
    free(channel);
    release(nic);
    return 0;
}

static struct ibv_cq *create_cq(struct ibv_context *context, int cqe, void *cq_context,
                                struct ibv_comp_channel *channel, int vector, size_t event_size) {
    struct nic *nic = NIC(context);
    if (cqe < 1 || cqe > MRC_MAX_CQE || vector < 0 || vector >= context->num_comp_vectors ||
        (channel && channel->context != context))
        return refuse(EINVAL);
    struct cq *cq = calloc(1, sizeof *cq);
    if (!cq)
        return NULL;
    add_object(nic, &cq->object);
    uint32_t depth = depth_for(cqe);
    struct mrc_request request = {
        .op = MRC_CREATE_CQ, .cookie = cq->object.cookie, .depth = depth,
        .mask = event_size != 0,
        .channel = channel ? OWNER(struct channel, base, channel)->handle : 0};
    struct mrc_reply reply;
    int fds[FDS];
    int error = ask(nic, &request, &reply, fds);
    if (!error) {
        error = map_queue(&cq->queue, fds[0], depth, sizeof(struct mrc_cqe));
        if (error)
            ask_to_destroy(nic, MRC_DESTROY_CQ, reply.handle);
    }
    if (error) {
        remove_object(nic, &cq->object);
        free(cq);
        return refuse(error);
    }
    cq->base = (struct ibv_cq){.context = context, .channel = channel, .cq_context = cq_context,
                               .handle = reply.handle, .cqe = depth};
    cq->event_size = event_size;
    if (channel)
        __atomic_add_fetch(&channel->refcnt, 1, __ATOMIC_ACQ_REL);
    keep(nic);
    return &cq->base;
}

struct ibv_cq *mrc0_create_cq(struct ibv_context *context, int cqe, void *cq_context,
                              struct ibv_comp_channel *channel, int vector) {
    return create_cq(context, cqe, cq_context, channel, vector, 0);
}

struct ibv_cq *mrc0_create_event_cq(struct ibv_context *context, int cqe, void *cq_context,
                                    struct ibv_comp_channel *channel, int vector, size_t size) {
    return create_cq(context, cqe, cq_context, channel, vector, size);
}

size_t mrc0_event_size(struct ibv_cq *cq) { return CQ(cq)->event_size; }

/* Put the completions that wait into a ring of another depth. */
int mrc0_resize_cq(struct ibv_cq *base, int cqe) {
    struct queue *queue = &CQ(base)->queue;
    if (cqe < 1 || cqe > MRC_MAX_CQE)
        return EINVAL;
    uint32_t depth = depth_for(cqe);
    struct mrc_request request = {.op = MRC_RESIZE_CQ, .handle = base->handle, .depth = depth};
    struct mrc_reply reply;
    int fds[FDS];
    pthread_mutex_lock(&queue->lock);
    int error = ask(NIC(base->context), &request, &reply, fds);
    if (!error) {
        error = map_ring(queue, fds[0], depth, sizeof(struct mrc_cqe));
        if (error)
            store(NIC(base->context)->gone, 1); /* nobody would see what completes */
        else
            base->cqe = depth;
    }
    pthread_mutex_unlock(&queue->lock);
    return error;
}

int mrc0_destroy_cq(struct ibv_cq *base) {
    struct cq *cq = CQ(base);
    struct nic *nic = NIC(base->context);
    int error = ask_to_destroy(nic, MRC_DESTROY_CQ, base->handle);
    if (error)
        return error;
    remove_object(nic, &cq->object);
    if (base->channel)
        __atomic_sub_fetch(&base->channel->refcnt, 1, __ATOMIC_ACQ_REL);
    unmap_queue(&cq->queue);
    free(cq);
    release(nic);
    return 0;
}

int mrc0_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **cq_context) {
    struct nic *nic = NIC(channel->context);
    struct object *object = NULL;
    if (nic->owner != getpid()) {
        errno = EIO;
        return -1;
    }
    while (!object) { /* events of destroyed queues are passed over */
        uint64_t cookie;
        ssize_t size = read(channel->fd, &cookie, sizeof cookie);
        if (size != sizeof cookie) {
            if (size >= 0) {
                store(nic->gone, 1);
                errno = EIO; /* the NIC process has ended */
            }
            return -1;
        }
        object = deliver(nic, cookie);
    }
    *cq = &OWNER(struct cq, object, object)->base;
    *cq_context = (*cq)->cq_context;
    return 0;
}

void mrc0_ack_cq_events(struct ibv_cq *cq, unsigned int count) {
    acknowledge(NIC(cq->context), &CQ(cq)->object, count);
}

/* ---- queue pairs ------------------------------------------------------------------------------ */

/* Returns the errno of ibv_create_qp(3). */
static int refuse_type(int type) {
    switch (type) {
    case IBV_QPT_UC:
        return mrc0_lacks("unreliable connections (UC); it has RC", EOPNOTSUPP);
    case IBV_QPT_UD:
        return mrc0_lacks(MRC0_NO_UD, EOPNOTSUPP);
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV:
        return mrc0_lacks(MRC0_NO_XRC, EOPNOTSUPP);
    }
    return mrc0_lacks("queue pairs but those of reliable connections (RC)", EOPNOTSUPP);
}

struct ibv_qp *mrc0_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init) {
    struct nic *nic = NIC(pd->context);
    struct ibv_qp_cap *cap = &init->cap;
    if (init->qp_type != IBV_QPT_RC)
        return refuse(refuse_type(init->qp_type));
    if (init->srq)
        return refuse(mrc0_lacks(MRC0_NO_SRQ, EOPNOTSUPP));
    if (!init->send_cq || !init->recv_cq || init->send_cq->context != pd->context ||
        init->recv_cq->context != pd->context || cap->max_send_wr > MRC_MAX_DEPTH ||
        cap->max_recv_wr > MRC_MAX_DEPTH || cap->max_send_sge > MRC_MAX_SGE ||
        cap->max_recv_sge > MRC_MAX_SGE || cap->max_inline_data > MRC_MAX_INLINE)
        return refuse(EINVAL);
    struct qp *qp = calloc(1, sizeof *qp);
    if (!qp)
        return NULL;
    add_object(nic, &qp->object);
    uint32_t send_depth = depth_for(cap->max_send_wr), recv_depth = depth_for(cap->max_recv_wr);
    struct mrc_request request = {
        .op = MRC_CREATE_QP, .handle = pd->handle, .cookie = qp->object.cookie,
        .depth = send_depth, .recv_depth = recv_depth, .send_cq = init->send_cq->handle,
        .recv_cq = init->recv_cq->handle, .signal_all = init->sq_sig_all != 0};
    struct mrc_reply reply;
    int fds[FDS];
    int error = ask(nic, &request, &reply, fds);
    if (!error) {
        int wrong_send = map_queue(&qp->send, fds[0], send_depth, sizeof(struct mrc_wqe));
        int wrong_recv = map_queue(&qp->recv, fds[1], recv_depth, sizeof(uint64_t));
        error = wrong_send ? wrong_send : wrong_recv;
        if (error)
            ask_to_destroy(nic, MRC_DESTROY_QP, reply.handle);
    }
    if (error) {
        unmap_queue(&qp->send);
        unmap_queue(&qp->recv);
        remove_object(nic, &qp->object);
        free(qp);
        return refuse(error);
    }
    *cap = (struct ibv_qp_cap){send_depth, recv_depth, MRC_MAX_SGE, MRC_MAX_SGE, MRC_MAX_INLINE};
    qp->init = *init;
    qp->base = (struct ibv_qp){
        .context = pd->context, .qp_context = init->qp_context, .pd = pd,
        .send_cq = init->send_cq, .recv_cq = init->recv_cq, .handle = reply.handle,
        .qp_num = reply.key, .state = IBV_QPS_RESET, .qp_type = IBV_QPT_RC};
    keep(nic);
    return &qp->base;
}

/* Keep what was set, for ibv_query_qp. */
static void remember(struct ibv_qp_attr *kept, const struct ibv_qp_attr *attr, int mask) {
#define KEEP(flag, field)    \
    if (mask & IBV_QP_##flag) \
        kept->field = attr->field;
    KEEP(ACCESS_FLAGS, qp_access_flags)
    KEEP(PKEY_INDEX, pkey_index)
    KEEP(PORT, port_num)
    KEEP(QKEY, qkey)
    KEEP(AV, ah_attr)
    KEEP(PATH_MTU, path_mtu)
    KEEP(TIMEOUT, timeout)
    KEEP(RETRY_CNT, retry_cnt)
    KEEP(RNR_RETRY, rnr_retry)
    KEEP(RQ_PSN, rq_psn)
    KEEP(SQ_PSN, sq_psn)
    KEEP(MAX_QP_RD_ATOMIC, max_rd_atomic)
    KEEP(MAX_DEST_RD_ATOMIC, max_dest_rd_atomic)
    KEEP(MIN_RNR_TIMER, min_rnr_timer)
    KEEP(DEST_QPN, dest_qp_num)
#undef KEEP
}

static int modify(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask, uint32_t flags) {
    struct qp *qp = QP(base);
    if (mask & IBV_QP_ALT_PATH || (mask & IBV_QP_PORT && attr->port_num != PORT) ||
        (mask & IBV_QP_PKEY_INDEX && attr->pkey_index) ||
        (mask & IBV_QP_PATH_MTU && (attr->path_mtu < IBV_MTU_256 || attr->path_mtu > IBV_MTU_4096)))
        return EINVAL;
    if (mask & IBV_QP_AV && (!attr->ah_attr.is_global || attr->ah_attr.grh.sgid_index)) {
        MRC0_SAY_ONCE("mrc0: the peer's address is its GID, so is_global must be 1, sgid_index 0");
        return EINVAL;
    }
    struct mrc_request request = {.op = MRC_MODIFY_QP, .handle = base->handle,
                                  .mask = mask | flags};
    if (mask & IBV_QP_STATE)
        request.state = attr->qp_state;
    if (mask & IBV_QP_ACCESS_FLAGS)
        request.access = attr->qp_access_flags;
    if (mask & IBV_QP_PATH_MTU)
        request.mtu = 128u << attr->path_mtu;
    if (mask & IBV_QP_DEST_QPN)
        request.peer_qpn = attr->dest_qp_num;
    if (mask & IBV_QP_RQ_PSN)
        request.peer_psn = attr->rq_psn & 0xffffff;
    if (mask & IBV_QP_SQ_PSN)
        request.first_psn = attr->sq_psn & 0xffffff;
    if (mask & IBV_QP_RETRY_CNT)
        request.retries = attr->retry_cnt;
    if (mask & IBV_QP_TIMEOUT)
        request.timeout = attr->timeout;
    if (mask & IBV_QP_AV)
        memcpy(request.peer, &attr->ah_attr.grh.dgid, sizeof request.peer);
    struct mrc_reply reply;
    int error = ask(NIC(base->context), &request, &reply, NULL);
    if (error)
        return error;
    remember(&qp->attr, attr, mask);
    if (mask & IBV_QP_STATE)
        base->state = attr->qp_state;
    return 0;
}

int mrc0_modify_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask) {
    return modify(base, attr, mask, 0);
}

int mrc0_modify_mrc_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask) {
    return modify(base, attr, mask, MRC_MODIFY_MRC);
}

struct mrc_state *mrc0_mrc_state(struct ibv_qp *base) { return &QP(base)->mrc; }

int mrc0_set_mrc(struct ibv_qp *base, const struct mrc_qp_attr *attr) {
    struct mrc_request request = {.op = MRC_SET_MRC, .handle = base->handle,
                                  .address = (uintptr_t)attr, .length = sizeof *attr};
    struct mrc_reply reply;
    return ask(NIC(base->context), &request, &reply, NULL);
}

int mrc0_query_qp(struct ibv_qp *base, struct ibv_qp_attr *attr, int mask,
                 struct ibv_qp_init_attr *init) {
    struct qp *qp = QP(base);
    struct mrc_request request = {.op = MRC_QUERY_QP, .handle = base->handle};
    struct mrc_reply reply;
    int error = ask(NIC(base->context), &request, &reply, NULL);
    (void)mask; /* which attributes must be there; all are */
    if (error)
        return error;
    base->state = reply.state;
    *attr = qp->attr;
    attr->qp_state = attr->cur_qp_state = base->state;
    attr->cap = qp->init.cap;
    *init = qp->init;
    return 0;
}

int mrc0_destroy_qp(struct ibv_qp *base) {
    struct qp *qp = QP(base);
    struct nic *nic = NIC(base->context);
    int error = ask_to_destroy(nic, MRC_DESTROY_QP, base->handle);
    if (error)
        return error;
    remove_object(nic, &qp->object);
    unmap_queue(&qp->send);
    unmap_queue(&qp->recv);
    free(qp);
    release(nic);
    return 0;
}

/* ---- asynchronous events ---------------------------------------------------------------------- */

static int is_of_cq(int type) { return type == IBV_EVENT_CQ_ERR; }

static int is_of_qp(int type) {
    return (type >= IBV_EVENT_QP_FATAL && type <= IBV_EVENT_COMM_EST) ||
           type == IBV_EVENT_QP_LAST_WQE_REACHED;
}

static int next_async_event(struct nic *nic, struct ibv_async_event *event) {
    for (;;) { /* events of destroyed queues are passed over */
        struct mrc_event received;
        ssize_t size = read(nic->extended.context.async_fd, &received, sizeof received);
        if (size < 0)
            return -1;
        if (size == 0) { /* the NIC process has ended: say so once */
            if (__atomic_exchange_n(&nic->told, 1, __ATOMIC_ACQ_REL)) {
                errno = EIO;
                return -1;
            }
            received = (struct mrc_event){.type = IBV_EVENT_DEVICE_FATAL, .port = PORT};
        }
        *event = (struct ibv_async_event){.element.port_num = received.port,
                                          .event_type = received.type};
        if (!is_of_cq(event->event_type) && !is_of_qp(event->event_type))
            return 0;
        struct object *object = deliver(nic, received.cookie);
        if (object && is_of_cq(event->event_type))
            event->element.cq = &OWNER(struct cq, object, object)->base;
        else if (object)
            event->element.qp = &OWNER(struct qp, object, object)->base;
        if (object)
            return 0;
    }
}

static void release_nic(void *nic) { release(nic); }

int mrc0_get_async_event(struct ibv_context *context, struct ibv_async_event *event) {
    struct nic *nic = NIC(context);
    int error;
    if (nic->owner != getpid()) {
        errno = EIO;
        return -1;
    }
    keep(nic); /* programs wait here in a thread that they cancel, or close the device under it */
    pthread_cleanup_push(release_nic, nic);
    error = next_async_event(nic, event);
    pthread_cleanup_pop(1);
    return error;
}

void mrc0_ack_async_event(struct ibv_async_event *event) {
    if (is_of_cq(event->event_type))
        acknowledge(NIC(event->element.cq->context), &CQ(event->element.cq)->object, 1);
    else if (is_of_qp(event->event_type))
        acknowledge(NIC(event->element.qp->context), &QP(event->element.qp)->object, 1);
}
