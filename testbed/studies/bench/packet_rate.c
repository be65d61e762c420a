/* The rate to compare with: a packet sent over and over with sendmmsg, received with recvmmsg.
 *
 *   packet_rate send SECONDS WINDOW EVERY <packet    prints how many arrived, in how many seconds
 *   packet_rate receive EVERY <acknowledgement       until it is killed
 *
 * Packets are given whole, outer IPv6 header first. At most WINDOW are under way: the receiver
 * answers every EVERY packets, so that nothing is lost and nothing is counted that did not arrive. */
#define _GNU_SOURCE
#include <err.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BATCH = 64, LONGEST = 9000, BUFFER = 8 << 20, IPV6_IN_IPV6 = 41, SOURCE = 8, DESTINATION = 24 };

static unsigned char packet[LONGEST], arrived[BATCH][LONGEST];
static struct iovec out_iovec, in_iovecs[BATCH];
static struct sockaddr_in6 from = {.sin6_family = AF_INET6}, to = {.sin6_family = AF_INET6};
static struct mmsghdr outgoing[BATCH], incoming[BATCH];
static int sender, receiver;

static void open_sockets(void) {
  size_t length = fread(packet, 1, LONGEST, stdin);
  int buffer = BUFFER;
  memcpy(&from.sin6_addr, packet + SOURCE, sizeof from.sin6_addr);
  memcpy(&to.sin6_addr, packet + DESTINATION, sizeof to.sin6_addr);
  out_iovec = (struct iovec){packet, length};
  for (int i = 0; i < BATCH; i++) {
    in_iovecs[i] = (struct iovec){arrived[i], LONGEST};
    outgoing[i].msg_hdr = (struct msghdr){&to, sizeof to, &out_iovec, 1, NULL, 0, 0};
    incoming[i].msg_hdr = (struct msghdr){NULL, 0, &in_iovecs[i], 1, NULL, 0, 0};
  }
  sender = socket(AF_INET6, SOCK_RAW, IPPROTO_RAW);
  receiver = socket(AF_INET6, SOCK_RAW, IPV6_IN_IPV6);
  if (sender < 0 || receiver < 0) err(1, "socket");
  if (bind(sender, (struct sockaddr *)&from, sizeof from) < 0) err(1, "bind");
  setsockopt(receiver, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer);
}

static long receive(int flags) {
  int count = recvmmsg(receiver, incoming, BATCH, flags, NULL);
  return count > 0 ? count : 0;
}

static long send_some(long count) {
  int sent = count > 0 ? sendmmsg(sender, outgoing, count < BATCH ? count : BATCH, 0) : 0;
  if (sent < 0) err(1, "sendmmsg");
  return sent;
}

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec + time.tv_nsec / 1e9;
}

int main(int argc, char **argv) {
  open_sockets();
  if (argc == 3)
    for (long got = 0, every = atol(argv[2]);; got %= every) {
      got += receive(MSG_WAITFORONE);
      send_some(got / every);
    }
  if (argc != 5) errx(2, "see the head of the source");
  double begin = now(), end = begin + atof(argv[2]);
  long window = atol(argv[3]), every = atol(argv[4]), sent = 0, acked = 0;
  while (now() < end) {
    long some = send_some(window - (sent - acked));
    sent += some;
    acked += every * receive(some ? MSG_DONTWAIT : MSG_WAITFORONE);
  }
  printf("%ld %f\n", acked, now() - begin);
}
