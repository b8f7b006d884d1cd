#!/usr/bin/env bash
# Runs a peer in a virtual environment of its own, which is made from PyPI when it is not there:
#   benchmarks/procgen/peers/run.sh rllib|sample_factory [arguments of its script]
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
case "${1:-}" in
rllib) packages=("ray[rllib]" "pyarrow<21" "pandas<3") script=rllib_impala.py ;;
sample_factory) packages=(sample-factory) script=sample_factory_appo.py ;;
*)
    echo "usage: $0 rllib|sample_factory [arguments]" >&2
    exit 2
    ;;
esac
venv="${PEERS_DIR:-$HOME/.cache/sb3-hrl/peers}/$1"
if [ ! -e "$venv/ready" ]; then
    "${PYTHON:-python3.11}" -m venv "$venv"
    "$venv/bin/pip" install --quiet "torch==2.13.0" procgen-mirror "setuptools<82" "${packages[@]}"
    touch "$venv/ready"
fi
shift
export RAY_AUTH_MODE=disabled
cd "$here" && exec "$venv/bin/python" "$script" "$@"
