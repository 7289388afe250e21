// Package export_davit_controller_payloads names the guest's encoding.
package export_davit_controller_payloads

// Encoding names the encoding of every payload.
func Encoding() string { return "json" }
