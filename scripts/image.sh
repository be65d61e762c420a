#!/usr/bin/env bash
# image.sh build: makes the container image mrc-testbed.
# image.sh test:  runs in it, privileged, a scenario and the tests; and once unprivileged, which must
#                 end with a clear message.
#   CONTAINER      podman or docker, with options of its own; by default the first that is installed
#   BASE           the base image; by default one that is made here from packages of SUITE
#   SUITE          a release of Debian, by default bookworm (12); that of another one is mrc-testbed-SUITE
#   BUILD_OPTIONS  further options of `build`, such as --volume for a proxy's certificates
#   RUN_OPTIONS    further options of `run`
#   ARGS           further arguments of `make test`
set -euo pipefail
cd "$(dirname "$0")/.."

say() { echo "image: $*" >&2; }
fail() {
  say "$*"
  exit 3
}

read -ra engine <<<"${CONTAINER:-$(command -v podman || command -v docker || true)}"
((${#engine[@]})) || fail "neither podman nor docker is installed: apt-get install podman"
read -ra build_options <<<"${BUILD_OPTIONS:-}"
read -ra run_options <<<"${RUN_OPTIONS:-}"
suite=${SUITE:-bookworm}
image=mrc-testbed
[[ $suite == bookworm ]] || image+=-$suite

# Makes a base image of packages, where BASE names none.
make_base() {
  local base=$image-base
  if ! "${engine[@]}" image inspect "$base" >/dev/null 2>&1; then
    command -v mmdebstrap >/dev/null || fail "no BASE is given, and making one needs mmdebstrap: apt-get install mmdebstrap"
    say "making a base image from packages of Debian's $suite"
    # A mirror may lag behind, and its Release file expire; its signature is checked all the same.
    mmdebstrap --quiet --variant=minbase --aptopt='Acquire::Check-Valid-Until "false"' \
      --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
      --dpkgopt='path-exclude=/usr/share/locale/*' "$suite" - | "${engine[@]}" import - "$base" >/dev/null
  fi
  echo "$base"
}

build() {
  local begin=$SECONDS base
  base=${BASE:-$(make_base)}
  "${engine[@]}" build "${build_options[@]}" --build-arg BASE="$base" -f Containerfile -t "$image" .
  say "$image: $("${engine[@]}" image inspect --format '{{.Size}}' "$image" | awk '{printf "%.0f MB", $1 / 1e6}')," \
    "made in $((SECONDS - begin)) s"
}

run() { "${engine[@]}" run --rm "${run_options[@]}" "$@"; }

check_unprivileged() {
  local status=0 output
  output=$(run "$image" 2>&1) || status=$?
  if ((status == 0)) || [[ $output != *privileged* ]]; then
    say "without privileges: exit status $status, and this instead of a message that names them:"
    printf '%s\n' "$output" >&2
    return 1
  fi
  say "without privileges: ${output##*$'\n\n'}"
}

# The scenario as it is; then at larger dilations, where the machine is too slow (exit status 3) or too busy (4).
run_scenario() {
  local dilation arguments="" output
  output=$(mktemp)
  for dilation in 100000 300000 1000000 ""; do
    if run --privileged "$image" make run-scenario ARGS="$arguments" 2>&1 | tee "$output"; then return; fi
    [[ $dilation ]] && grep -qE '^make: .* Error [34]$' "$output" || return 1
    say "it failed; again at a dilation of $dilation"
    arguments="--force --set topology.dilation=$dilation --set duration='$((dilation / 2000)) s'"
    arguments+=" --set timeline[0].at='$((dilation * 3 / 20000)) s'"
    arguments+=" --set timeline[0].for='$((dilation * 3 / 20000)) s'"
  done
}

case ${1:-} in
  build) build ;;
  test)
    status=0
    check_unprivileged
    run_scenario || status=1 # on a machine that others use it may never be trusted
    run --privileged "$image" make test ARGS="${ARGS:-}" || status=1
    exit "$status"
    ;;
  *) fail "usage: image.sh build|test" ;;
esac
