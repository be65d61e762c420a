#!/usr/bin/env bash
# Checks the types of the live page's JavaScript (JSDoc) with the TypeScript compiler.
# It needs node and npm. Without them, or without a package registry, it says what is left out and
# succeeds; in CI (CI=true) it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
version=5.9.3
home=$PWD/.setup/typescript
compiler=$home/node_modules/typescript

leave_out() {
  echo "left out: the types of the live page's JavaScript ($1)" >&2
  [[ ${CI:-} != true ]] || exit 1
  exit 0
}

command -v node >/dev/null && command -v npm >/dev/null || leave_out "it needs node and npm"
if [[ $(node -p "require('$compiler/package.json').version" 2>/dev/null) != "$version" ]]; then
  mkdir -p "$home"
  npm install --silent --no-fund --no-audit --no-save --prefix "$home" "typescript@$version" >&2 ||
    leave_out "npm could not install typescript $version"
fi
node "$compiler/bin/tsc" --project testbed/live/page
