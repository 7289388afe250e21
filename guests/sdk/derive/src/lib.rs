//! `#[derive(View)]`, for the SDK that re-exports it.
//!
//! A view is a struct with named fields. Each field has a path in the object. The paths of
//! a view are a tree, and the macro writes the code that reads each level of it.

mod expand;
mod path;
mod tree;

use proc_macro::TokenStream;
use syn::{DeriveInput, Error, parse_macro_input};

/// Reads a struct from an object of the API: it implements serde's `Deserialize`.
///
/// A field is read from the field of the same name in camelCase. `#[view(rename = "…")]`
/// gives another name, `#[view(path = "…")]` a path through fields that need no struct of
/// their own: `spec.nodeName`, `metadata.labels["app"]`. A field that is absent or null
/// keeps its value of the struct's `Default`.
///
/// `#[view(flatten)]` reads another view of the same object, and `#[view(path = "…", flatten)]`
/// one of what is at the path. Several views and fields may read parts of one place, as long as
/// no two of them read the same field.
#[proc_macro_derive(View, attributes(view))]
pub fn view(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    expand::view(&input)
        .unwrap_or_else(Error::into_compile_error)
        .into()
}
