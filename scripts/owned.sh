#!/usr/bin/env bash
# owned.sh DIRECTORY... -- COMMAND...
# Runs COMMAND. Under sudo, files that it creates as root in the DIRECTORIES are then given to the user
# who called sudo.
set -euo pipefail

directories=()
while [[ $1 != -- ]]; do
  directories+=("$1")
  shift
done
shift

if ((EUID != 0)) || [[ ${SUDO_UID:-0} == 0 ]]; then exec "$@"; fi

since=$(date +%s)
for directory in "${directories[@]}"; do
  [[ -e $directory ]] && continue
  # With the rights of the user; in a place where they may make none it is made for them.
  setpriv --reuid "$SUDO_UID" --regid "$SUDO_GID" --clear-groups mkdir -p -- "$directory" \
    2>/dev/null || { mkdir -- "$directory" && chown -h "$SUDO_UID:$SUDO_GID" "$directory"; }
done

# shellcheck disable=SC2317  # the trap calls it
hand_back() {
  local directory
  for directory in "${directories[@]}"; do
    # Only in directories of the user, and there only new files of root. `-execdir` changes each in
    # the directory in which it was found: whoever swaps directories meanwhile gains nothing.
    if [[ -d $directory && $(stat -c %u "$directory") == "$SUDO_UID" ]]; then
      PATH=/usr/sbin:/usr/bin:/sbin:/bin find "$directory" -xdev \
        -path "$directory/.git" -prune -o -uid 0 -newerct "@$since" \
        -execdir chown -h "$SUDO_UID:$SUDO_GID" {} +
    fi
  done
}
trap hand_back EXIT

# In the background, as otherwise the shell handles a signal only after the command; Ctrl-C reaches both.
(
  trap - INT
  exec "$@"
) <&0 &
child=$!
trap 'kill -TERM $child 2>/dev/null || true' TERM HUP
trap : INT
status=0
wait "$child" || status=$?
while kill -0 "$child" 2>/dev/null; do # a signal ends `wait`, not the command
  status=0
  wait "$child" || status=$?
done
exit "$status"
