//! Why an artefact cannot be pulled.

use crate::modules::MOST_BYTES;

/// The media types of a module's layer: of the CNCF's layout, and the older one.
pub(super) const WASM: &str = "application/wasm";
pub(super) const FORMER_WASM: &str = "application/vnd.wasm.content.layer.v1+wasm";

/// The longest quotation of a registry's answer, in characters.
const LONGEST_QUOTATION: usize = 300;

/// Why an artefact cannot be pulled.
#[derive(Debug, thiserror::Error)]
pub enum OciProblem {
    /// No connection, or one that broke.
    #[error("the registry {registry} cannot be reached: {reason}")]
    Unreachable {
        /// The registry.
        registry: String,
        /// The root cause.
        reason: String,
    },
    /// It took too long.
    #[error("the registry {0} did not answer in time")]
    NoAnswer(String),
    /// No access.
    #[error(
        "the registry {registry} denies {who}; some registries answer so if the artefact \
         does not exist{}",
        if *anonymous { ": a private artefact needs a pullSecret" } else { "" }
    )]
    Unauthorised {
        /// The registry.
        registry: String,
        /// The credentials.
        who: String,
        /// Whether there were none.
        anonymous: bool,
    },
    /// The registry's token service gave no token.
    #[error("the registry {registry} has no token for {who}; its token service answers: {answer}")]
    NoToken {
        /// The registry.
        registry: String,
        /// The credentials.
        who: String,
        /// The token service's answer.
        answer: String,
    },
    /// The token is malformed.
    #[error("the token of the registry {registry} cannot be used: {reason}")]
    OddToken {
        /// The registry.
        registry: String,
        /// The reason.
        reason: String,
    },
    /// It names a token service, or a redirect, that the host does not follow.
    #[error("the registry {registry} names {target}, which is not used: {reason}")]
    Misled {
        /// The registry.
        registry: String,
        /// The URL without its query, which may hold a signature.
        target: String,
        /// Why the host does not follow it.
        reason: String,
    },
    /// The artefact does not exist.
    #[error("the registry {0} has no such artefact: check the repository and the tag")]
    NotFound(String),
    /// An unexpected answer.
    #[error("the registry {registry} answered: {answer}")]
    Refused {
        /// The registry.
        registry: String,
        /// The answer.
        answer: String,
    },
    /// An index.
    #[error(
        "the artefact is an index of several artefacts: name one of them by its own tag or digest"
    )]
    Index,
    /// No module.
    #[error(
        "the artefact holds no module: its layers are of type {}; the layer of a guest is of \
         type {WASM} or {FORMER_WASM}",
        list(_0)
    )]
    NoWasm(Vec<String>),
    /// More than one module.
    #[error("the artefact has {0} layers of wasm: a guest is one component, in one layer")]
    Several(usize),
    /// The manifest is malformed.
    #[error("the artefact's manifest cannot be used: {0}")]
    Manifest(String),
    /// The signatures are malformed, or too many.
    #[error("the artefact's signatures cannot be used: {0}")]
    Signatures(String),
    /// It is larger than the largest module.
    #[error("the module has {0} bytes, and the host loads modules of up to {MOST_BYTES} bytes")]
    TooLarge(u64),
    /// The content does not have its digest.
    #[error("the content that the registry sent does not match its digest: {0}")]
    Torn(String),
    /// The certificates of `caCert` are malformed.
    #[error("the certificates of caCert cannot be used: {0}")]
    Certificates(String),
    /// TLS is not possible without certificates.
    #[error(
        "TLS cannot be used: {0}; set caCert, or install the system's certificates \
         (ca-certificates)"
    )]
    Tls(String),
}

/// A text from a registry, on one line and shortened.
pub(super) fn shortened(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(LONGEST_QUOTATION).collect()
}

fn list(types: &[String]) -> String {
    if types.is_empty() {
        return "none".to_owned();
    }
    types.join(", ")
}
