//! The names of decisions, and the ids of their traces.

use std::fmt::{self, Write as _};
use std::sync::Arc;

use davit_core::controller::DecisionId;
use sha2::{Digest as _, Sha256};

/// Names the decisions of one run of the host.
#[derive(Clone, Debug)]
pub(super) struct DecisionNames {
    run: Arc<str>,
}

/// A decision as logs, events and traces name it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DecisionName(String);

/// The ids of a decision's trace. They follow from its name, so that a line of the log
/// has them without any state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TraceIds {
    pub(super) trace: [u8; 16],
    /// The span of the whole decision.
    pub(super) root: [u8; 8],
}

impl DecisionNames {
    /// The time at which the host started distinguishes its decisions from those of another
    /// run.
    pub(super) fn of_this_run() -> Self {
        let millis = jiff::Timestamp::now().as_millisecond();
        let run = format!("{millis:x}").into();
        Self { run }
    }

    pub(super) fn name(&self, id: DecisionId) -> DecisionName {
        DecisionName(format!("{}-{id}", self.run))
    }
}

impl DecisionName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }

    pub(super) fn ids(&self) -> TraceIds {
        let digest: [u8; 32] = Sha256::digest(&self.0).into();
        let mut ids = TraceIds {
            trace: [0; 16],
            root: [0; 8],
        };
        let (trace, rest) = digest.split_at(ids.trace.len());
        ids.trace.copy_from_slice(trace);
        ids.root.copy_from_slice(rest.split_at(8).0);
        ids
    }
}

impl TraceIds {
    /// The id of the trace in 32 hexadecimal digits.
    pub(super) fn trace_text(self) -> String {
        self.trace
            .iter()
            .fold(String::with_capacity(32), |mut text, byte| {
                // Writing to a text does not fail.
                let _ = write!(text, "{byte:02x}");
                text
            })
    }
}

impl fmt::Display for DecisionName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use davit_core::controller::{CallId, ControllerId};

    use super::*;

    fn id(controller: u64, number: u64, position: u32) -> DecisionId {
        let call = CallId {
            controller: ControllerId(controller),
            number,
        };
        DecisionId { call, position }
    }

    #[test]
    fn the_trace_of_a_decision_follows_from_its_name() {
        let run = "019f0000aa".into();
        let names = DecisionNames { run };
        let name = names.name(id(1, 23, 4));
        assert_eq!(name.as_str(), "019f0000aa-1-23-4");
        assert_eq!(name.ids(), names.name(id(1, 23, 4)).ids());
        // The first half of the name's SHA-256.
        assert_eq!(name.ids().trace_text(), "add863c1682b3ccb2b0c7cfc86807da5");
        let all = [id(1, 23, 4), id(1, 23, 5), id(1, 24, 4), id(2, 23, 4)];
        let traces: BTreeSet<[u8; 16]> = all.iter().map(|id| names.name(*id).ids().trace).collect();
        assert_eq!(traces.len(), all.len());
    }
}
