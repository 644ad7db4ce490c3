#!/usr/bin/env bash
# Prints the Python to use, or fails with one line that says what this machine lacks, before anything is set up.
# Java is checked only when it is needed: by scripts/java.sh for Spark, by make interop for the tests with Java.
set -euo pipefail

fail() { printf 'gantrymq: %s\n' "$*" >&2; exit 1; }

python=""
for candidate in ${PYTHON:-python3.14 python3.13 python3.12 python3.11 python3}; do
    # A name on the PATH may be a version manager's stub without an interpreter, so run it.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed${PYTHON:+ ($PYTHON is not)}: install it" \
    "(Debian: apt-get install python3 python3-venv), or name it with make PYTHON=/path/to/python"
"$python" -c 'import ensurepip, venv' 2>/dev/null \
    || fail "$python cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)"

printf '%s\n' "$python"
