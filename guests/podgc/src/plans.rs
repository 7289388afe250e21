//! The plans of a pass.

use std::collections::BTreeSet;

use davit_guest::{Context, Object, Plan, Reason};

use crate::deletion;
use crate::view::Pod;

/// The pass's plans, one for each pod.
#[derive(Default)]
pub(crate) struct Plans {
    all: Vec<Plan>,
    uids: BTreeSet<String>,
}

impl Plans {
    pub(crate) fn add(
        &mut self,
        cx: &Context<'_>,
        pod: Object<Pod>,
        reason: Reason,
        message: String,
    ) {
        if self.uids.insert(pod.reference.uid.clone()) {
            self.all.push(deletion::plan(cx, pod, reason, message));
        }
    }

    pub(crate) fn into_all(self) -> Vec<Plan> {
        self.all
    }
}
