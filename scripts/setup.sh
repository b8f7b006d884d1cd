#!/bin/sh
# Set up .venv with the package and its native module:  scripts/setup.sh [EXTRAS]
# What is missing on the machine is said in one sentence, before anything is created.
set -eu
cd "$(dirname "$0")/.."
extras=${1:-}
venv=${VENV:-.venv}

fail() {
    echo "sb3-hrl: $1" >&2
    exit 1
}

is_supported() {
    "$1" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 12))' >/dev/null 2>&1
}

if [ ! -x "$venv/bin/python" ]; then
    python=""
    for candidate in ${PYTHON:-python3 python3.12 python3.11 python}; do
        if is_supported "$candidate"; then
            python=$candidate
            break
        fi
    done
    if [ -z "$python" ]; then
        found=$("${PYTHON:-python3}" --version 2>/dev/null || echo "no ${PYTHON:-python3}")
        fail "Python 3.11 or 3.12 is needed and $found was found; install one, or name it: make venv PYTHON=/path/to/python3.12"
    fi
    "$python" -c 'import venv, ensurepip' 2>/dev/null ||
        fail "$python has no venv module; install it (Debian, Ubuntu: apt-get install python3-venv)"
else
    python=$venv/bin/python
    is_supported "$python" || fail "$venv was made with another Python; remove it and run make again"
fi

"$python" -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' ||
    fail "the headers of $python are missing; install them (Debian, Ubuntu: apt-get install python3-dev)"

compiler=${CXX:-}
if [ -z "$compiler" ]; then
    for candidate in c++ g++ clang++; do
        if command -v "$candidate" >/dev/null 2>&1; then
            compiler=$candidate
            break
        fi
    done
fi
echo 'int main() { if constexpr (sizeof(int) > 1) return 0; }' | "${compiler:-c++}" -std=c++17 -x c++ -fsyntax-only - >/dev/null 2>&1 ||
    fail "a C++17 compiler is needed and ${compiler:-none} was found to be one; install it (Debian, Ubuntu: apt-get install g++), or name it in CXX"

if [ ! -x "$venv/bin/python" ]; then
    echo "Making $venv with $("$python" --version) ..."
    "$python" -m venv "$venv"
fi
pip="$venv/bin/python -m pip --disable-pip-version-check install --quiet"
echo "Installing the build tools and torch ..."
# The exact release first: an open range could bring another torch than the one the native module is built against.
$pip "torch==2.13.0"
$pip "mujoco==4.0.0" "scikit-build-core==1.1.*" "pybind11==3.1.*" cmake ninja
echo "Installing sb3-hrl${extras:+ with [$extras]} and building its native module ..."
$pip --no-build-isolation --editable ".${extras:+[$extras]}"
