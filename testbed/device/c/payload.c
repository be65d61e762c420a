/* A thread that moves payload for the NIC, where ptrace's rules forbid it to reach the program.
 *
 * The bytes go through a socket, straight from and to where they belong: where a place is not
 * mapped (any more), the kernel refuses the call, and nobody is hurt.
 */
#define _GNU_SOURCE
#include "device.h"
#include "protocol.h"

#include <errno.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { DONE = 0, NOT_MAPPED = 1 };

/* The places of a request, in `parts`; returns how many, or -1 if it is none. */
static int places(const struct mrc_copy *copy, ssize_t size, struct iovec *parts) {
    if (size != sizeof *copy || copy->count > MRC_MAX_SGE)
        return -1;
    for (uint32_t i = 0; i < copy->count; i++)
        parts[i] = (struct iovec){(void *)(uintptr_t)copy->places[i].address,
                                  copy->places[i].length};
    return copy->count;
}

static ssize_t answer(int fd, uint8_t status, struct iovec *parts, int count) {
    parts[0] = (struct iovec){&status, 1};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = count + 1};
    return sendmsg(fd, &message, MSG_NOSIGNAL);
}

static void *serve(void *argument) {
    int fd = (int)(intptr_t)argument, count;
    struct mrc_copy copy;
    struct iovec parts[1 + MRC_MAX_SGE]; /* the first is for the status of the answer */
    while ((count = places(&copy, recv(fd, &copy, sizeof copy, 0), parts + 1)) >= 0) {
        ssize_t sent;
        if (copy.is_write) {
            struct msghdr message = {.msg_iov = parts + 1, .msg_iovlen = count};
            ssize_t got = recvmsg(fd, &message, 0);
            sent = answer(fd, got < 0 ? NOT_MAPPED : DONE, parts, 0);
        } else {
            sent = answer(fd, DONE, parts, count);
            if (sent < 0 && errno == EFAULT)
                sent = answer(fd, NOT_MAPPED, parts, 0);
        }
        if (sent < 0)
            break;
    }
    return NULL;
}

int mrc0_start_payload(struct payload *payload, int fd) {
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the program's own threads */
    int error = pthread_create(&payload->thread, NULL, serve, (void *)(intptr_t)fd);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        return error;
    payload->fd = fd;
    payload->owner = getpid();
    return 0;
}

void mrc0_end_payload(struct payload *payload) {
    if (!payload->owner)
        return;
    if (payload->owner == getpid()) { /* a child of fork() has no such thread */
        shutdown(payload->fd, SHUT_RDWR);
        pthread_join(payload->thread, NULL);
    }
    close(payload->fd);
}
