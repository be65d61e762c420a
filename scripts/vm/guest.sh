#!/usr/bin/env bash
# Runs inside the virtual machine: everything that depends on the kernel. $1: where to write.
set -uo pipefail
results=$1
python=.venv/bin/python
export MPLCONFIGDIR=/tmp/matplotlib

echo "test-vm: booted $(uname -srm), $($python --version)"
uname -r >"$results/kernel"
$python --version >"$results/python"

# step NAME COMMAND...: runs it, and appends its exit status and duration to steps.jsonl.
step() {
  local name=$1 begin=$SECONDS status=0
  shift
  echo "test-vm: $name: $*"
  "$@" 2>&1 | tee "$results/$name.log"
  status=${PIPESTATUS[0]}
  echo "{\"name\": \"$name\", \"status\": $status, \"seconds\": $((SECONDS - begin))}" >>"$results/steps.jsonl"
}

# Runs link-failure at ever larger dilations, until the machine is in time for the run to be trusted. The
# load is not judged beforehand (--force). The fault comes after eleven RTTs, lasts as many, and as many follow.
trusted() {
  local dilation status=1 times
  for dilation in 100000 300000 1000000; do
    times=("duration=$((dilation / 2000)) s" "timeline[0].at=$((dilation * 3 / 20000)) s"
      "timeline[0].for=$((dilation * 3 / 20000)) s")
    status=0
    $python -P -m testbed run link-failure --set topology.dilation=$dilation "${times[@]/#/--set=}" --force \
      --stop-if-late --no-figures --results /tmp/results --json >"$results/run.json" || status=$?
    echo "dilation $dilation: exit status $status"
    if ((status != 4)); then break; fi # 4: it cannot be trusted
  done
  (cd /tmp/results && find . -type f -exec cp --parents {} "$results" \;) # it ran in memory
  ((status == 0)) && grep -q '"verdict": "trusted"' "$results/run.json"
}

if [[ -e $results/command ]]; then
  step command bash "$results/command"
  exit
fi
# Without IPv6 both commands name it, and end with exit status 3.
without_ipv6() {
  local status
  for command in "doctor" "run link-failure --force --results /tmp/results"; do
    status=0
    $python -P -m testbed $command >/tmp/output 2>&1 || status=$?
    cat /tmp/output
    ((status == 3)) && grep -q "IPv6" /tmp/output && grep -q "ipv6.disable=1" /tmp/output || return 1
  done
}

if grep -q ipv6.disable=1 /proc/cmdline; then
  step without-ipv6 without_ipv6
  exit
fi
# A test must not wait for the disk: see COUNTED in test_vm.py.
find /usr/bin /usr/sbin /usr/lib/python3* /usr/lib/*-linux-gnu /opt/venv /mrc-testbed -type f \
  -exec cat {} + >/dev/null
step doctor $python -P -m testbed doctor
step tests $python -P -m pytest -q -n 0 -p no:cacheprovider -m kernel --require-root \
  --require-link-model --durations=15 -ra tests/fabric tests/controller tests/endpoint tests/mapper \
  --junit-xml="$results/tests.xml"
step host $python -P -m pytest -q -n 0 -p no:cacheprovider -m vm --require-root --durations=0 -ra tests/vm \
  --junit-xml="$results/host.xml"
step link-failure trusted
