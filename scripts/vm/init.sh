#!/bin/bash
# The first process of the virtual machine: mounts what a system has, and leaves the rest to guest.sh.
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
mount -o remount,rw /
mount -t sysfs sysfs /sys
mkdir -p /dev/pts /dev/shm /run /tmp /mnt
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
rm -rf /var/run && ln -s /run /var/run
ip link set lo up
hostname test-vm
ldconfig
modprobe 9pnet_virtio
modprobe tun # as udev does when a system boots
mount -t 9p -o trans=virtio,version=9p2000.L results /mnt
cd /mrc-testbed && bash scripts/vm/guest.sh /mnt
sync
echo o >/proc/sysrq-trigger
sleep 60
