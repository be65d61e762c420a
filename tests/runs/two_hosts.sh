#!/bin/bash
# Runs a command beside two hosts: network namespaces with an sshd each, 10.11.0.1 and 10.11.0.2.
# Usage: two_hosts.sh DIRECTORY COMMAND...   (as root; all of it disappears with the command)
# SECOND_HOST is a further option of the second one's sshd. The command's HOME is DIRECTORY, which has the keys; DIRECTORY/hosts lists the two hosts.
set -euo pipefail
if [[ ${TWO_HOSTS:-} != inside ]]; then
  TWO_HOSTS=inside exec unshare --mount --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
directory=$1
shift
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd "$directory/.ssh"
chmod 700 "$directory/.ssh"
ip link set lo up
ip link add name hub type bridge
ip address add 10.11.0.254/24 dev hub
ip link set hub up
[[ -e $directory/.ssh/id_ed25519 ]] || ssh-keygen -q -t ed25519 -N '' -f "$directory/.ssh/id_ed25519"
[[ -e $directory/host_key ]] || ssh-keygen -q -t ed25519 -N '' -f "$directory/host_key"
: > "$directory/.ssh/known_hosts"
: > "$directory/hosts"
for number in 1 2; do
  address=10.11.0.$number
  ip netns add "host$number"
  ip link add "to$number" master hub up type veth peer name eth0 netns "host$number"
  ip -n "host$number" link set lo up
  ip -n "host$number" link set eth0 up
  ip -n "host$number" address add "$address/24" dev eth0
  ip -n "host$number" route add default via 10.11.0.254
  further=()
  if [[ $number == 2 && -n ${SECOND_HOST:-} ]]; then further=(-o "$SECOND_HOST"); fi
  ip netns exec "host$number" /usr/sbin/sshd -f /dev/null -h "$directory/host_key" \
    -o "AuthorizedKeysFile=$directory/.ssh/id_ed25519.pub" -o PasswordAuthentication=no \
    "${further[@]}" -o StrictModes=no -o UsePAM=no -o PidFile=none
  echo "$address $(cut -d' ' -f1,2 "$directory/host_key.pub")" >> "$directory/.ssh/known_hosts"
  echo "$address" >> "$directory/hosts"
done
HOME=$directory "$@"
