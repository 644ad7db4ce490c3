#!/usr/bin/env bash
# Says in one line what is missing on this machine, before anything is set up. Prints the Python to use.
# Spark and the interop tests run on Java; everything else runs on Python alone, but one rule is easier to keep.
set -euo pipefail

fail() { printf 'gantrymq: %s\n' "$*" >&2; exit 1; }

python=""
for candidate in ${PYTHON:-python3.13 python3.12 python3.11 python3}; do
    # A name on the PATH may be a version manager's stub that runs nothing, so ask the interpreter itself.
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
        python=$candidate
        break
    fi
done
[ -n "$python" ] || fail "Python 3.11 or newer is needed${PYTHON:+ ($PYTHON is not)}: install it" \
    "(Debian: apt-get install python3 python3-venv), or name it with make PYTHON=/path/to/python"
"$python" -c 'import ensurepip, venv' 2>/dev/null \
    || fail "$python cannot make virtual environments: install its venv module (Debian: apt-get install python3-venv)"

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# "17.0.15" and "21-ea" are 17 and 21; Java 8 called itself "1.8.0".
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || version=""
if [ "${version:-0}" -lt 17 ]; then
    fail "Java 17 or newer is needed (found ${version:-none}${JAVA_HOME:+, JAVA_HOME is $JAVA_HOME}):" \
        "install it (Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)"
fi

printf '%s\n' "$python"
