// Package runtime allocates what crosses the interface.
package runtime

import (
	"runtime"
	"unsafe"
)

// What the host has written and the program has not taken yet.
var pinner runtime.Pinner

// Unpin releases what the host has written for the current call.
func Unpin() { pinner.Unpin() }

// Allocate returns memory that stays where it is until the pinner releases it.
func Allocate(pinner *runtime.Pinner, size, align uintptr) unsafe.Pointer {
	if size == 0 {
		return unsafe.Pointer(align)
	}
	// Words of 8 bytes have every alignment of the interface.
	words := make([]uint64, (size+7)/8)
	start := unsafe.Pointer(unsafe.SliceData(words))
	pinner.Pin(start)
	return start
}

//go:wasmexport cabi_realloc
func realloc(old unsafe.Pointer, oldSize, align, size uint32) unsafe.Pointer {
	grown := Allocate(&pinner, uintptr(size), uintptr(align))
	if oldSize > 0 {
		copy(unsafe.Slice((*byte)(grown), size), unsafe.Slice((*byte)(old), oldSize))
	}
	return grown
}
