//! The errors of manifests that break the rules.

use crate::path::PathError;

/// The error in a manifest. The guest's author has to fix it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A name is empty.
    #[error("a {item} has an empty name")]
    Unnamed {
        /// `watch`, `queue`, …
        item: &'static str,
    },
    /// Two declarations of one kind have the same name.
    #[error("there are two {item}s called \"{name}\"")]
    Duplicate {
        /// `watch`, `queue`, …
        item: &'static str,
        /// The name they share.
        name: String,
    },
    /// A reference to a name that is not declared.
    #[error("{referrer} names the {item} \"{name}\", which is not declared")]
    Undeclared {
        /// The declaration with the reference: `the tick "gc"`.
        referrer: String,
        /// `watch`, `queue`, …
        item: &'static str,
        /// The missing name.
        name: String,
    },
    /// A trigger has a condition about an object, and keys that belong to several.
    #[error(
        "a trigger of the queue \"{queue}\" has a condition: its key must be the object's own key or uid"
    )]
    ConditionWithoutObject {
        /// The queue.
        queue: String,
    },
    /// A field path is not valid.
    #[error("watch \"{watch}\": {source}")]
    Path {
        /// The watch that declares it.
        watch: String,
        /// The reason.
        source: PathError,
    },
    /// An index is outside of the declared fields.
    #[error(
        "index \"{index}\" of the watch \"{watch}\" is over {path}, which is not among the watch's fields"
    )]
    IndexOutsideFields {
        /// The watch.
        watch: String,
        /// The index.
        index: String,
        /// Its path.
        path: String,
    },
    /// A watch of every resource may declare fields of metadata only.
    #[error("the watch \"{watch}\" of every resource declares {path}: it can keep metadata only")]
    NotMetadata {
        /// The watch.
        watch: String,
        /// The field outside of the metadata.
        path: String,
    },
    /// A number is out of range.
    #[error("{item} of \"{name}\" is {value}: it must be {must}")]
    OutOfRange {
        /// `workers`, `period`, …
        item: &'static str,
        /// The queue, tick or metric.
        name: String,
        /// The value.
        value: String,
        /// The allowed values.
        must: &'static str,
    },
    /// A list or a text is too long.
    #[error("{found} {item}{of}: the most is {most}")]
    TooMany {
        /// `watches`, `bytes of the name`, …
        item: &'static str,
        /// The declaration that it belongs to: ` of "pods"`; empty for the manifest.
        of: String,
        /// The count.
        found: usize,
        /// The most.
        most: usize,
    },
    /// A string that this version of the host does not know.
    #[error("{item} of \"{name}\" is \"{value}\": this host knows {known}")]
    Unknown {
        /// `kind`, `verb`, …
        item: &'static str,
        /// Its declaration.
        name: String,
        /// The value.
        value: String,
        /// The known values.
        known: &'static str,
    },
}
