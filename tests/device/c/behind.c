/* Opens a socket; with the address sanitizer it starts only if that has no say in the order of
 * libraries. As BESIDE it is another library that stands before the C library. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <sys/socket.h>

#ifdef BESIDE
int socket(int domain, int type, int protocol) {
    int (*real)(int, int, int) = (int (*)(int, int, int))dlsym(RTLD_NEXT, "socket");
    puts("beside");
    return real(domain, type, protocol);
}
#else
int main(void) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    puts(fd < 0 ? "no socket" : "socket");
    return 0;
}
#endif
