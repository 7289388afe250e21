#!/bin/sh
# Builds the guest with QuickJS: build-quickjs.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
# The imports of WASI become traps: Davit's guests have no clock, no randomness and no network.
"${DAVIT_COMPONENTIZE_QJS:-componentize-qjs}" --js "$here/podgc.js" \
  --wit "$here/../../../wit/davit-controller-0.1.0" \
  --world controller-with-encoding \
  --stub-wasi --sync --opt-size --minify \
  --output "$1/podgc.wasm"
