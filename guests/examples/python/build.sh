#!/bin/sh
# Builds the guest: build.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
# The imports of WASI become traps: Davit's guests have no clock, no randomness and no network.
"${DAVIT_COMPONENTIZE_PY:-componentize-py}" \
  --wit-path "$here/../../../wit/davit-controller-0.1.0" \
  --world controller-with-encoding \
  componentize --python-path "$here" --stub-wasi --output "$1/podgc.wasm" podgc
