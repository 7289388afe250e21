//! The fields of Kubernetes' built-in kinds.
//!
//! Which fields does a Pod have, and which of its strings are times? [`Kind::check`]
//! answers for one of Davit's field paths, and an unknown field comes with a suggestion:
//!
//! ```
//! let pods = davit_kinds::kind("", "pods").unwrap();
//! let started = pods.check("status.startTime").unwrap();
//! assert_eq!(started, davit_kinds::Type::Time);
//! let error = pods.check("status.fase").unwrap_err();
//! assert_eq!(
//!     error.to_string(),
//!     "pods (v1) has no field \"status.fase\"; did you mean \"status.phase\"?"
//! );
//! ```
//!
//! The data is what an API server publishes about itself, in `src/kinds.txt`.
//! `cargo xtask kinds` writes that file. Custom resources are not in it: what an API server
//! publishes of one becomes a [`PublishedType`].
//!
//! A guest may call this crate: there is nothing to start, and a lookup reads the text
//! of the data with a binary search.

mod check;
mod data;
mod kind;
mod published;
mod suggestion;
mod types;

pub use check::UnknownField;
pub use kind::{
    Kind, in_words, is_of_metadata, kind, kind_at, kind_of_type, kinds, resource_of_kind,
};
pub use published::PublishedType;
pub use suggestion::nearest;
pub use types::{ElementType, Field, ObjectType, Type, object_types};

/// The version of Kubernetes that the data is from: `1.36`.
#[must_use]
pub fn kubernetes_version() -> &'static str {
    data::version()
}
