//! The contract in `wit/` as Rust: generated, and public only for `export!`.
//! Authors use the names that the crate's root re-exports.

#![allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unsafe_code,
    clippy::pedantic,
    clippy::allow_attributes_without_reason,
    reason = "generated code; its documentation is in wit/"
)]

wit_bindgen::generate!({
    path: "../../wit/davit-controller-0.1.0",
    world: "controller-with-reads",
    additional_derives: [PartialEq],
    pub_export_macro: true,
    export_macro_name: "export_component",
    default_bindings_module: "davit_guest::bindings",
});
