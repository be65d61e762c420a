#!/bin/sh
# p0_t0_0 of tiny. As root, with Linux 6.1 and iproute2 6.1 or newer.
# Its ports have to have these names, or change the names here.
set -e
# Linux trims no packets: a full queue drops. Rates and ECN are tc's, and not here.
sysctl -q -w net.ipv6.conf.all.forwarding=1
# A SID cannot be on lo. usid is any interface that stays up.
ip link show dev usid > /dev/null 2>&1 || ip link add usid type dummy
ip link set dev usid up
ip link set dev p0_t0_0-d0 mtu 9000 up
ip -6 address replace fd4d:5243:ffff::65/127 dev p0_t0_0-d0 nodad
ip link set dev p0_t0_0-u0 mtu 9000 up
ip -6 address replace fd4d:5243:ffff::68/127 dev p0_t0_0-u0 nodad
ip -6 route replace 5f00:0:3000::/48 via fd4d:5243:ffff::64 dev p0_t0_0-d0
ip -6 route replace 5f00:0:2000::/48 via fd4d:5243:ffff::69 dev p0_t0_0-u0
ip -6 route replace 5f00:0:1000::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 count dev usid
