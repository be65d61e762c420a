#!/bin/bash
# Runs a command beside a Slurm cluster of two nodes, node1 and node2, in namespaces of its own.
# Usage: slurm.sh DIRECTORY COMMAND...   (as root; all of it disappears with the command)
# DIRECTORY gets Slurm's configuration, state and logs.
set -euo pipefail
if [[ ${IN_SLURM:-} != yes ]]; then
  IN_SLURM=yes exec unshare --mount --uts --net --pid --fork --kill-child --mount-proc "$0" "$@"
fi
directory=$1
shift
mkdir -p "$directory/state"
ip link set lo up
# Slurm resolves names by the families of addresses that are not on the loopback interface.
ip link add name net type bridge
ip address add 10.12.0.1/24 dev net
ip link set net up
host=node
hostname "$host"
printf '127.0.0.1 localhost\n10.12.0.1 %s\n' "$host" > "$directory/hosts"
mount --bind "$directory/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /etc/munge
mount -t tmpfs tmpfs /var/lib/munge
mkdir -m 755 /run/munge /run/spoolnode{1,2} # short: paths of sockets have 108 characters at most
head -c 1024 /dev/urandom > /etc/munge/munge.key
chmod 400 /etc/munge/munge.key
munged --force --log-file="$directory/munged.log" # as root: it is alone here

cat > "$directory/slurm.conf" << END
ClusterName=test
SlurmctldHost=$host(10.12.0.1)
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
MpiDefault=none
ReturnToService=2
SchedulerParameters=sched_interval=1
StateSaveLocation=$directory/state
SlurmdSpoolDir=/run/spool%n
SlurmctldPidFile=$directory/slurmctld.pid
SlurmdPidFile=$directory/slurmd%n.pid
SlurmctldLogFile=$directory/slurmctld.log
SlurmdLogFile=$directory/slurmd%n.log
NodeName=node1 NodeHostname=$host NodeAddr=10.12.0.1 Port=17001 CPUs=1 RealMemory=4000
NodeName=node2 NodeHostname=$host NodeAddr=10.12.0.1 Port=17002 CPUs=1 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$directory/slurm.conf
slurmctld
slurmd -N node1
slurmd -N node2
for ((i = 0; ; i++)); do
  [[ $(sinfo --noheader --format=%T 2> /dev/null) == idle ]] && break
  ((i < 150)) || { echo "slurm.sh: the nodes did not come up: $directory/*.log" >&2; exit 1; }
  sleep 0.2
done
"$@"
