#!/bin/sh
# Builds the guest with SpiderMonkey: build.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
# Every feature of WASI is off: Davit's guests have no clock, no randomness and no network.
"${DAVIT_COMPONENTIZE_JS:-componentize-js}" "$here/podgc.js" \
  --wit "$here/../../../wit/davit-controller-0.1.0" \
  --world-name controller-with-encoding \
  --disable stdio random clocks http fetch-event \
  --out "$1/podgc.wasm"
