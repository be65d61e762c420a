#!/bin/sh
# h1 of tiny. As root, with Linux 6.1 and iproute2 6.1 or newer.
# Its ports have to have these names, or change the names here.
set -e
ip link set dev h1-p0 mtu 9000 up
ip -6 address replace fd4d:5243:ffff::66/127 dev h1-p0 nodad
ip -6 address replace 5f00:0:3000::/128 dev lo nodad
ip -6 address replace fd4d:5243:1::1/128 dev lo nodad
ip -6 route replace 5f00:0:1001::/48 via fd4d:5243:ffff::67 dev h1-p0
