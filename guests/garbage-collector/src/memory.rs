//! What the collector remembers between calls: a bounded number of facts that,
//! once true, stay true. Forgetting one costs a request, never a mistake.
//!
//! Each fact has one slot among the host's notes, by its hash, and a later fact
//! takes an earlier one's slot. So nothing grows, nothing has to be tidied up,
//! and calls that learn at the same time do not undo each other.

use davit_guest::{Command, Context, ObjectRef};

/// As many as kube-controller-manager's cache of absent owners holds, about.
const SLOTS: u64 = 512;

/// Something that stays true.
pub(crate) enum Fact<'a> {
    /// The API server has no object with this uid at these coordinates. Uids
    /// are never given twice.
    Absent(&'a ObjectRef),
    /// The object with this uid went from the cache, and the API server did not
    /// even know this kind, by which it is named, when it was asked at once: the
    /// kind went after its objects.
    GoneWithKind {
        /// The object's uid.
        uid: &'a str,
        /// The group and version by which it is named.
        api_version: &'a str,
        /// The kind by which it is named.
        kind: &'a str,
    },
    /// The API server takes no strategic merge patch for this kind.
    MergeOnly {
        /// The kind's group and version.
        api_version: &'a str,
        /// The kind.
        kind: &'a str,
    },
}

impl Fact<'_> {
    /// Whether it was learnt and not forgotten.
    pub(crate) fn is_known(&self, cx: &Context<'_>) -> bool {
        let text = self.text();
        cx.note::<String>(&slot(&text)).is_some_and(|it| it == text)
    }

    /// Learns it.
    pub(crate) fn learn(&self) -> Command {
        let text = self.text();
        Command::set_note(&slot(&text), Some(&text))
    }

    fn text(&self) -> String {
        match self {
            Self::Absent(object) => {
                let ObjectRef {
                    api_version,
                    kind,
                    namespace,
                    name,
                    uid,
                } = object;
                format!("absent {api_version} {kind} {namespace}/{name} {uid}")
            }
            Self::GoneWithKind {
                uid,
                api_version,
                kind,
            } => format!("gone-with-kind {api_version} {kind} {uid}"),
            Self::MergeOnly { api_version, kind } => format!("merge-only {api_version} {kind}"),
        }
    }
}

fn slot(text: &str) -> String {
    format!("fact/{}", fnv1a(text) % SLOTS)
}

/// The same in every build and every call, unlike the standard library's.
fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
