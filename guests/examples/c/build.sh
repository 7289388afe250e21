#!/bin/sh
# Builds the guest: build.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$1"
"${DAVIT_WIT_BINDGEN:-wit-bindgen}" c "$here/../../../wit/davit-controller-0.1.0" \
  --world controller-with-encoding --out-dir "$1"
"${DAVIT_CLANG:-clang}" --target=wasm32-wasi -mexec-model=reactor -Os -Wall -Wextra \
  -I "$1" -Wl,--strip-debug -o "$1/podgc.core.wasm" \
  "$here/podgc.c" "$here/json.c" \
  "$1/controller_with_encoding.c" "$1/controller_with_encoding_component_type.o"
"${DAVIT_JCO:-jco}" new "$1/podgc.core.wasm" -o "$1/podgc.wasm"
