/* Where all hosts of a fabric share the loopback of one machine, as on a simulated fabric, this makes
 * each of them look like a machine of its own: MRC_HOSTS has their names and addresses, MRC_ADDRESS
 * the own one. Names resolve to the addresses. A server that would listen on all addresses of the
 * machine listens on its host's, so that each host has all ports to itself.
 *
 * Without these variables nothing is changed.
 */
#define _GNU_SOURCE
#include "next.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { MAX_ADDRESS = INET_ADDRSTRLEN };

/* Put the address of a host into `address`; returns whether there is a host of that name. */
static int find(const char *name, char address[static MAX_ADDRESS]) {
    const char *entry = getenv("MRC_HOSTS");
    size_t length = name ? strlen(name) : 0;
    while (length && entry && *entry) { /* NAME=ADDRESS,... */
        const char *end = strchrnul(entry, ',');
        const char *value = entry + length + 1;
        if (value < end && end - value < MAX_ADDRESS && entry[length] == '=' &&
            !memcmp(entry, name, length)) {
            memcpy(address, value, end - value);
            address[end - value] = 0;
            return 1;
        }
        entry = *end ? end + 1 : end;
    }
    return 0;
}

EXPORT int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                       struct addrinfo **found) {
    NEXT(int, getaddrinfo,
         (const char *, const char *, const struct addrinfo *, struct addrinfo **));
    char address[MAX_ADDRESS], mapped[sizeof "::ffff:" + MAX_ADDRESS];
    if (!real)
        return EAI_SYSTEM;
    if ((hints && hints->ai_flags & AI_NUMERICHOST) || !find(name, address))
        return real(name, service, hints, found);
    if (!hints || hints->ai_family != AF_INET6)
        return real(address, service, hints, found);
    snprintf(mapped, sizeof mapped, "::ffff:%s", address);
    return real(mapped, service, hints, found);
}

EXPORT struct hostent *gethostbyname(const char *name) {
    NEXT(struct hostent *, gethostbyname, (const char *));
    char address[MAX_ADDRESS];
    return real ? real(find(name, address) ? address : name) : NULL;
}

EXPORT int bind(int fd, __CONST_SOCKADDR_ARG place, socklen_t length) {
    NEXT(int, bind, (int, const struct sockaddr *, socklen_t));
    if (!real) {
        errno = ENOSYS;
        return -1;
    }
    const struct sockaddr *given = place.__sockaddr__;
    const char *text = getenv("MRC_ADDRESS");
    struct in_addr own;
    if (!text || !given || inet_pton(AF_INET, text, &own) != 1)
        return real(fd, given, length);
    if (given->sa_family == AF_INET && length >= sizeof(struct sockaddr_in)) {
        struct sockaddr_in here = *(const struct sockaddr_in *)given;
        if (here.sin_port && here.sin_addr.s_addr == htonl(INADDR_ANY)) {
            here.sin_addr = own;
            return real(fd, (struct sockaddr *)&here, sizeof here);
        }
    } else if (given->sa_family == AF_INET6 && length >= sizeof(struct sockaddr_in6)) {
        struct sockaddr_in6 here = *(const struct sockaddr_in6 *)given;
        int only_ipv6 = 0;
        socklen_t size = sizeof only_ipv6;
        getsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &only_ipv6, &size);
        if (here.sin6_port && !only_ipv6 && IN6_IS_ADDR_UNSPECIFIED(&here.sin6_addr)) {
            here.sin6_addr.s6_addr[10] = here.sin6_addr.s6_addr[11] = 0xff; /* ::ffff:ADDRESS */
            memcpy(here.sin6_addr.s6_addr + 12, &own, sizeof own);
            return real(fd, (struct sockaddr *)&here, sizeof here);
        }
    }
    return real(fd, given, length);
}
