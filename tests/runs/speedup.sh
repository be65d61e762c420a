#!/bin/bash
# Times a series of simulated runs on one worker, then on two, each on a host and a CPU of its own.
# Usage: speedup.sh DIRECTORY [RUNS]   (as root, in a checkout, on an idle machine with two CPUs)
# The hosts are network namespaces (two_hosts.sh). Prints both times, and their ratio.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")
if [[ ${TWO_HOSTS:-} != inside ]]; then
  mkdir -p "$1"
  exec "$here/two_hosts.sh" "$(readlink -f "$1")" "$0" "$(readlink -f "$1")" "${2:-12}"
fi
directory=$1 runs=$2 bin=$here/../../.venv/bin
cd "$directory"
openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=test -keyout key.pem -out cert.pem 2> /dev/null
export DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=True
export DASK_DISTRIBUTED__COMM__TLS__CA_FILE=$directory/cert.pem
for role in SCHEDULER WORKER CLIENT; do
  export "DASK_DISTRIBUTED__COMM__TLS__${role}__CERT=$directory/cert.pem"
  export "DASK_DISTRIBUTED__COMM__TLS__${role}__KEY=$directory/key.pem"
done
"$bin/dask" scheduler --host 10.11.0.254 --protocol tls --port 8786 --no-dashboard 2> scheduler.log &
times=()
for hosts in 1 2; do
  ip netns exec "host$hosts" taskset -c "$((hosts - 1))" "$bin/dask" worker tls://10.11.0.254:8786 \
    --protocol tls --host "10.11.0.$hosts" --nthreads 1 --no-dashboard 2> "worker$hosts.log" &
  until grep -q "Registered to" "worker$hosts.log"; do sleep 0.2; done
  began=$EPOCHREALTIME
  # Status 1 is fine: with some seeds no flow uses the link that fails, which the scenario expects.
  "$bin/testbed" simulate link-failure --repeat "$runs" --into "on$hosts" --no-figures \
    --on dask:tls://10.11.0.254:8786 > "on$hosts.txt" || (($? == 1))
  times+=("$(echo "$EPOCHREALTIME - $began" | tr , . | bc)")
done
echo "$runs runs: one host ${times[0]} s, two hosts ${times[1]} s," \
  "ratio $(echo "scale=3; ${times[1]} / ${times[0]}" | bc)"
