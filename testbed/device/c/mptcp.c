/* With TESTBED_MPTCP=1 a program's TCP sockets are those of Multipath TCP, as under `mptcpize run`.
 *
 * Unlike there, SO_REUSEADDR of a connected socket succeeds, where it has no effect: the kernel
 * refuses it for Multipath TCP (net/mptcp/sockopt.c), and PyTorch's gloo does not go on then.
 */
#define _GNU_SOURCE
#include "next.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#ifndef IPPROTO_MPTCP
#define IPPROTO_MPTCP 262
#endif

static int is_wanted(void) {
    const char *value = getenv("TESTBED_MPTCP");
    return value != NULL && strcmp(value, "1") == 0;
}

EXPORT int socket(int domain, int type, int protocol) {
    NEXT(int, socket, (int, int, int));
    int is_stream = (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM;
    int is_tcp = is_stream && (protocol == 0 || protocol == IPPROTO_TCP);
    if (is_tcp && (domain == AF_INET || domain == AF_INET6) && is_wanted())
        protocol = IPPROTO_MPTCP;
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    return real(domain, type, protocol);
}

EXPORT int setsockopt(int fd, int level, int name, const void *value, socklen_t size) {
    NEXT(int, setsockopt, (int, int, int, const void *, socklen_t));
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    int result = real(fd, level, name, value, size);
    if (result < 0 && errno == EINVAL && level == SOL_SOCKET && name == SO_REUSEADDR && is_wanted())
        return 0;
    return result;
}
