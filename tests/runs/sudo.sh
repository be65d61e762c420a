#!/bin/bash
# Runs a command as the user nobody, who may call `sudo -n` for the testbed and for nothing else.
# Usage: sudo.sh DIRECTORY PYTHON COMMAND...   (as root; the rule is there for this command only)
# DIRECTORY becomes nobody's, and is the command's HOME and current directory. PYTHON has the testbed.
set -euo pipefail
if [[ ${IN_SUDO:-} != yes ]]; then
  IN_SUDO=yes exec unshare --mount "$0" "$@"
fi
directory=$1 python=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs /etc/sudoers.d
printf 'nobody ALL=(root) NOPASSWD: %s -P -m testbed run *, %s -P -m testbed doctor *\n' \
  "$python" "$python" > "$directory/sudoers"
chmod 440 "$directory/sudoers"
mount --bind "$directory/sudoers" /etc/sudoers
chown nobody "$directory"
cd "$directory"
exec setpriv --reuid=nobody --regid="$(id -g nobody)" --clear-groups \
  env -u IN_SUDO -u SUDO_UID -u SUDO_GID -u SUDO_USER "HOME=$directory" "$@"
