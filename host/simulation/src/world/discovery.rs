//! What the server serves, as discovery answers.

use davit_core::failure::{Failure, FailureClass};
use davit_core::machine::Input;
use davit_core::mapping::{Discovery, Mapping, ServedResource};
use davit_core::object::ApiResource;
use davit_sim::Model;

use super::{Conditions, Link, ScheduledEvent};
use crate::fault::FaultKind;

impl Link<'_> {
    /// Requests discovery. The answer is an [`Input::Discovered`].
    pub fn discover(&mut self) {
        let latency = self.shared.latency();
        let due = ScheduledEvent::Discover(self.client.incarnation);
        self.schedule(latency * 2, due);
    }

    pub(super) fn discovered(&mut self) {
        let fails = self.shared.dice.chance(self.shared.conditions.no_discovery);
        let answer = if fails || self.client.cut.is_any() {
            self.shared.count(FaultKind::DiscoveryFailure);
            self.note_silence();
            let reason = "discovery: connection reset";
            Err(Failure::new(FailureClass::Timeout, reason))
        } else {
            let (model, conditions) = (&self.shared.server.model, &self.shared.conditions);
            let answer = discovery(model, conditions);
            if !self.shared.conditions.unreached.is_empty() {
                self.shared.count(FaultKind::UnreachedGroup);
            }
            if !self.shared.conditions.unlisted.is_empty() {
                self.shared.count(FaultKind::UnlistedResource);
            }
            self.note_answer();
            Ok(answer)
        };
        let result = if answer.is_ok() { "succeeds" } else { "fails" };
        self.note(format_args!("discovery {result}"));
        self.report_result(Input::Discovered(answer));
    }
}

/// The resources that the server serves. A group version that discovery does not reach
/// has no resources here and is reported as failed.
pub(super) fn discovery(model: &Model, conditions: &Conditions) -> Discovery {
    let (unreached, unlisted) = (&conditions.unreached, &conditions.unlisted);
    let served = model.resources().iter().filter_map(|resource| {
        let api = ApiResource::new(&resource.group, &resource.version, &resource.plural);
        let is_there =
            !unreached.contains(&api.api_version()) && !unlisted.contains(&resource.plural);
        is_there.then(|| ServedResource {
            resource: api,
            kind: resource.kind.clone(),
            namespaced: resource.namespaced,
            verbs: resource.verbs.iter().map(ToString::to_string).collect(),
            preferred: is_preferred(model, resource),
        })
    });
    let reason = "the API server cannot reach the group version";
    Discovery {
        mapping: Mapping::new(served),
        failed: unreached
            .iter()
            .map(|version| (version.clone(), reason.to_owned()))
            .collect(),
    }
}

/// Whether this is the first version of the group that serves the resource.
fn is_preferred(model: &Model, resource: &davit_sim::resource::Resource) -> bool {
    let mut same = model
        .resources()
        .iter()
        .filter(|other| other.group == resource.group && other.plural == resource.plural);
    same.next()
        .is_some_and(|first| first.version == resource.version)
}
