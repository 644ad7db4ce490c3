#!/usr/bin/env bash
# Resolves pyproject.toml into requirements/*.lock: exact versions with hashes, valid for every supported Python and
# platform. The files have no index address, so that each machine uses its configured index.
# Needs `uv` on the PATH (or UV=/path/to/uv). Pass --upgrade to move to newer versions.
set -euo pipefail
cd "$(dirname "$0")/.."

compile=("${UV:-uv}" pip compile --quiet --universal --python-version 3.11 --fork-strategy fewest
    --generate-hashes --no-emit-index-url --no-emit-find-links --custom-compile-command "make lock")

"${compile[@]}" pyproject.toml --all-extras --group build --group dev -o requirements/dev.lock "$@"
# Only the build tools, at the versions of dev.lock.
"${compile[@]}" --group build -c requirements/dev.lock -o requirements/build.lock
