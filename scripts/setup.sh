#!/usr/bin/env bash
# Prepares this machine for the testbed: system packages (apt) and .venv from uv.lock; builds the link
# model's BPF program if its sources have changed.
# Each call checks what is there and does only what is missing; with nothing to do it takes 0.1 s.
#   PYTHON=/path/to/python3   the interpreter for .venv
# Exit status 3: this machine cannot be prepared; the message says what is missing.
set -euo pipefail

# package | check that it is there
required=(
  "iproute2|has ip"
  "python3|has_python"
  "python3-venv|can_have_uv"
)
no_link_model="links have a rate and a queue that drops its tail, no ECN, trimming, priorities or graded faults"
# package | check that it is there | the effect if it is missing
optional=(
  "openvswitch-switch|has ovs-vswitchd ovsdb-server|every fault goes through the link itself, none through OpenFlow"
  "iputils-ping|has ping|there is no ping and no pingall at the prompt of testbed shell"
  "libbpf1|has_libbpf|$no_link_model"
)
stays_off=" openvswitch-switch " # packages whose service must not start at boot if setup installs them

uv_version=0.13.8 # the version to fetch if there is no uv
uv_oldest=0.8     # the oldest version that is good enough

if [[ ${LC_ALL:-} == C || ${LC_ALL:-} == POSIX ]]; then export LC_ALL=C.UTF-8; fi # see link_checkout
cd "$(dirname "$0")/.."
state=$PWD/.setup
mkdir -p "$state"
export PATH=$PATH:/usr/sbin:/sbin # ip and ovs-vswitchd are there, not on a user's PATH (Debian)

say() { echo "setup: $*" >&2; }
fail() {
  say "$*"
  exit 3
}
has() {
  local command
  for command; do command -v "$command" >/dev/null || return 1; done
}

# ---- system packages ---------------------------------------------------------------------------

is_installed() { [[ $(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null) == installed ]]; }

# Package scripts start services through these two programs. Apt runs in a mount namespace in which
# both do nothing: no service starts, and nothing remains changed, even if this script is killed.
without_starting_services() {
  if ! unshare --mount true 2>/dev/null; then
    "$@" # in a container build, whose policy-rc.d keeps services off (apt_install checks it)
    return
  fi
  printf '#!/bin/sh\nexit 0\n' >"$state/start-nothing"
  chmod +x "$state/start-nothing"
  # shellcheck disable=SC2016  # the inner shell expands it
  unshare --mount bash -euc '
    for starter in /usr/bin/deb-systemd-invoke /usr/sbin/invoke-rc.d; do
      [[ ! -e $starter ]] || mount --bind "$0" "$starter"
    done
    exec "$@"' "$state/start-nothing" "$@"
}

# .setup/installing-PACKAGE exists while apt installs it, so that the next setup completes an
# installation that was killed; its content is `turn-off` if setup has to disable the service.
mark() {
  local package=$1 marker=$state/installing-$1
  if [[ -e $marker ]]; then return; fi
  if [[ $stays_off == *" $package "* ]] && ! is_installed "$package"; then
    echo turn-off >"$marker"
  else
    : >"$marker"
  fi
}

apt_run() {
  # NEEDRESTART_SUSPEND: Ubuntu's apt hook would restart other services.
  without_starting_services env DEBIAN_FRONTEND=noninteractive NEEDRESTART_SUSPEND=1 \
    "$@" >>"$state/apt.log" 2>&1
}

lists_updated=''
apt_install() {
  local package
  say "installing $* (log: .setup/apt.log)"
  if ! unshare --mount true 2>/dev/null && ! [[ -x /usr/sbin/policy-rc.d ]]; then
    say "apt would start services, as there are neither mount namespaces nor policy-rc.d:" \
      "install $* by hand"
    return 1
  fi
  if ! [[ $lists_updated ]]; then
    apt-get -q update >"$state/apt.log" 2>&1 ||
      say "apt-get update failed; continuing with the existing package lists"
    lists_updated=1
  fi
  for package; do
    apt-cache show --no-all-versions "$package" >/dev/null 2>&1 || {
      say "apt knows no package $package (is a component of the archive disabled in its sources?)"
      return 1
    }
  done

  if compgen -G "$state/installing-*" >/dev/null; then
    apt_run dpkg --configure -a || true # needed after a kill; if it fails, apt-get reports it
  fi
  for package; do mark "$package"; done
  apt_run apt-get -q -y -o DPkg::Lock::Timeout=300 install --no-install-recommends "$@" || {
    tail -n 10 "$state/apt.log" >&2
    say "apt-get could not install $*"
    for package; do is_installed "$package" || rm "$state/installing-$package"; done
    return 1
  }
  for package; do
    if [[ $(<"$state/installing-$package") == turn-off ]]; then
      apt_run update-rc.d "$package" disable || say "could not disable the service $package"
    fi
    rm "$state/installing-$package"
  done
}

has_header() { [[ -e /usr/include/$1 || -e /usr/local/include/$1 ]]; }
# No pipe to grep -q: it closes the pipe early, and with pipefail ldconfig's SIGPIPE counts as a failure.
has_libbpf() { [[ $(ldconfig -p) == *'libbpf.so.1 '* ]]; }

# Prints why nothing can be installed; nothing if apt can be used.
obstacle() {
  if ! has apt-get; then
    echo "There is no apt here: install it (Debian's name) by hand, then run make again."
  elif ((EUID != 0)); then
    echo "Installing it needs root: sudo make setup"
  fi
}

# Prints the packages that are missing, of the given lines.
missing() {
  local line package check
  for line; do
    IFS='|' read -r package check _ <<<"$line"
    if ! eval "$check" || [[ -e $state/installing-$package ]]; then echo "$package"; fi
  done
}

install_packages() {
  local lacking package line why
  mapfile -t lacking < <(missing "${required[@]}")
  if ((${#lacking[@]})); then
    [[ ! $(obstacle) ]] || fail "missing: ${lacking[*]}. $(obstacle)"
    apt_install "${lacking[@]}" || exit 3
  fi
  for line in "${optional[@]}"; do
    [[ $(missing "$line") ]] || continue
    IFS='|' read -r package _ why <<<"$line"
    if [[ $(obstacle) ]]; then
      say "continuing without $package: $why. $(obstacle)"
    elif [[ -e $state/failed-$package ]]; then
      say "continuing without $package: $why. To try again: rm .setup/failed-$package"
    elif ! apt_install "$package"; then
      touch "$state/failed-$package"
      say "continuing without $package: $why"
    fi
  done
}

# ---- the link model ----------------------------------------------------------------------------

# The object comes with the project; it is built only after a change of its sources.
build_link_model() {
  local sources=testbed/emulation/fabric/link_model/bpf
  if (cd "$sources" && sha256sum --check --status linkmodel.sha256); then return; fi
  if ! has clang || ! has_header bpf/bpf_helpers.h || ! has_header linux/bpf.h; then
    say "the sources of the link model have changed, and building it needs clang, libbpf-dev and" \
      "linux-libc-dev: until then $no_link_model"
    return
  fi
  say "building the link model"
  if clang -target bpf -mcpu=v3 -O2 -g -fdebug-compilation-dir=. -Wall -Wextra \
    -I"/usr/include/$(uname -m)-linux-gnu" \
    -c "$sources/linkmodel.bpf.c" -o "$state/linkmodel.bpf.o"; then
    mv "$state/linkmodel.bpf.o" "$sources"
    (cd "$sources" && sha256sum linkmodel.bpf.c linkmodel.h linkmodel.bpf.o >linkmodel.sha256)
  else
    say "clang could not build the link model: $no_link_model"
  fi
}

# ---- the library of the RDMA device --------------------------------------------------------------

# A wheel brings it; a fabric that finds none compiles it, so nothing is lost without a compiler here.
build_device_library() {
  if has cc || has gcc || has clang; then
    .venv/bin/python testbed/device/compiling.py || say "the library of the RDMA device does not compile"
  fi
}

# ---- Python ------------------------------------------------------------------------------------

python_fits() { "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] < (3, 15))' 2>/dev/null; }

# The system's Python first: .venv should not depend on a user's pyenv.
find_python() {
  local python
  for python in ${PYTHON:-/usr/bin/python3 python3.14 python3.13 python3.12 python3.11 python3}; do
    if has "$python" && python_fits "$python"; then
      command -v "$python"
      return
    fi
  done
  return 1
}

# A Python of another version counts as present: apt has no other, and make_venv reports it.
has_python() { find_python >/dev/null || has python3 || [[ ${PYTHON:-} ]]; }

# Prints the path of a uv that is new enough.
find_uv() {
  local found
  if has uv && found=$(uv --version 2>/dev/null) && sort -CV <<<"$uv_oldest"$'\n'"${found#uv }"; then
    command -v uv
  elif [[ -x $state/uv/bin/uv ]]; then
    echo "$state/uv/bin/uv"
  else
    return 1
  fi
}
has_uv() { find_uv >/dev/null; }
can_have_uv() {
  local python
  if has_uv; then return; fi
  if python=$(find_python); then "$python" -c 'import ensurepip' 2>/dev/null; else has_python; fi
}

# Prints the package index that uv or pip is configured to use, if any.
package_index() {
  local index=${UV_DEFAULT_INDEX:-${UV_INDEX_URL:-${PIP_INDEX_URL:-}}} python
  for python in "$state/uv/bin/python" "$1"; do
    [[ $index ]] || index=$("$python" -m pip config list 2>/dev/null |
      sed -n "s/^\(global\|install\)\.index-url='\(.*\)'$/\2/p" | tail -n 1) || true
  done
  echo "$index"
}

fetch_uv() {
  local index
  say "fetching uv $uv_version into .setup/"
  "$1" -m venv --clear "$state/uv"
  index=$(package_index "$1")
  "$state/uv/bin/python" -m pip install --quiet --no-cache-dir --disable-pip-version-check \
    ${index:+--index-url "$index"} "uv==$uv_version"
}

make_venv() {
  local python uv index
  python=$(find_python) || fail "Python 3.11 to 3.14 is needed, and ${PYTHON:-python3} is" \
    "$("${PYTHON:-python3}" --version 2>/dev/null || echo missing). With another one: make setup PYTHON=/path/to/it"
  has_uv || fetch_uv "$python"
  uv=$(find_uv)
  # An existing .venv keeps its Python, unless PYTHON names another.
  if [[ ! ${PYTHON:-} ]] && python_fits .venv/bin/python; then python=$PWD/.venv/bin/python; fi

  export UV_PYTHON_DOWNLOADS=never                  # use the machine's Python only
  export UV_CACHE_DIR=${UV_CACHE_DIR:-$state/cache} # under sudo, root writes nothing to ~/.cache
  if [[ -e ${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt} ]]; then
    export UV_SYSTEM_CERTS=1                        # trust the machine's certificates
  fi
  # Without an index: whether everything is installed does not depend on it.
  if env -u UV_DEFAULT_INDEX -u UV_INDEX_URL "$uv" sync --check --locked --offline --python "$python" \
    >/dev/null 2>&1; then return; fi

  # Bytecode is made now: a user's process may not write into .venv, or PYTHONDONTWRITEBYTECODE is
  # set, and each would compile hundreds of modules for a second.
  say "installing the Python packages of uv.lock into .venv ($("$python" --version))"
  index=$(package_index "$python")
  if [[ $index ]]; then
    # uv.lock has the addresses of PyPI; another index provides the same versions with the same hashes.
    "$uv" venv --quiet --allow-existing --python "$python" .venv
    env -u UV_DEFAULT_INDEX -u UV_INDEX_URL \
      "$uv" export --quiet --frozen --output-file "$state/requirements.txt" >/dev/null
    "$python" -c 'import tomllib; print("\n".join(
      tomllib.load(open("pyproject.toml", "rb"))["tool"]["uv"]["build-constraint-dependencies"]))' \
      >"$state/build-constraints.txt" # `uv pip` does not read them itself
    "$uv" pip sync --quiet --compile-bytecode --python .venv/bin/python --default-index "$index" \
      --build-constraints "$state/build-constraints.txt" "$state/requirements.txt"
  else
    "$uv" sync --quiet --locked --compile-bytecode --python "$python"
  fi
}

# Names the checkout by a relative path in .venv: Python 3.11 reads that file in the locale's encoding, and
# with LC_ALL=C would not start at all in a checkout whose path has other letters than ASCII.
link_checkout() {
  local link
  for link in .venv/lib/python*/site-packages/_editable_impl_mrc_testbed.pth; do
    [[ $(<"$link") == ../../../.. ]] || echo ../../../.. >"$link"
  done
}

install_packages
build_link_model
make_venv
link_checkout
build_device_library
