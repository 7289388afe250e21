#!/bin/sh
# Builds the guest: build.sh DIRECTORY
set -eu
here=$(cd "$(dirname "$0")" && pwd)
wit=$here/../../../wit/davit-controller-0.1.0
world=controller-with-encoding
jco=$(command -v "${DAVIT_JCO:-jco}")
mkdir -p "$1"
out=$(cd "$1" && pwd)

"${DAVIT_WIT_BINDGEN:-wit-bindgen}" go "$wit" --world "$world" --out-dir "$out"
mkdir -p "$out/export_davit_controller_decide" "$out/export_davit_controller_payloads" \
  "$out/pkg/wit/types" "$out/pkg/wit/runtime"
cp "$here/decide.go" "$out/export_davit_controller_decide/"
cp "$here/payloads.go" "$out/export_davit_controller_payloads/"
# The part of go.bytecodealliance.org/pkg that the bindings need, so that nothing is downloaded.
cp "$here/wit/types.go" "$out/pkg/wit/types/"
cp "$here/wit/runtime.go" "$out/pkg/wit/runtime/"
printf 'module go.bytecodealliance.org/pkg\n\ngo 1.25\n' >"$out/pkg/go.mod"
printf '\nreplace go.bytecodealliance.org/pkg => ./pkg\n' >>"$out/go.mod"

cd "$out"
GOOS=wasip1 GOARCH=wasm GOFLAGS=-mod=mod GOPROXY=off GOWORK=off \
  "${DAVIT_GO:-go}" build -buildmode=c-shared -ldflags='-s -w' -o podgc.core.wasm .
node "$here/embed.mjs" "$jco" "$wit/controller.wit" "$world" podgc.core.wasm podgc.embedded.wasm
"$jco" parse "$here/wasi.wat" -o wasi.wasm
"$jco" new podgc.embedded.wasm --adapt wasi_snapshot_preview1=wasi.wasm -o podgc.wasm
