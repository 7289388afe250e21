//! The streams of the machine, fed from the lists that the journal has.

use super::cluster::{Cluster, GroupKind};
use super::history::{History, RecordedList, VersionedObject};
use super::refusal::Refusal;
use crate::mapping::Mapping;
use crate::object::ProjectedObject;
use crate::path::{FieldPath, FieldTree, IDENTITY};
use crate::secrets;
use crate::store::{SegmentId, SegmentSpec};
use crate::stream::{StreamSpec, Update};
use crate::time::Instant;
use crate::watch::Condition;

/// What the journal does not have of a Secret.
const SECRET_FIELDS: [&str; 3] = ["data", "stringData", "metadata.annotations"];

/// A stream of the machine.
#[derive(Debug)]
pub(super) struct Feed {
    spec: StreamSpec,
    /// The fields of its objects, with those of their identity.
    pub(super) fields: FieldTree,
    /// The recorded list that feeds it; none while the journal has none.
    source: Option<Source>,
    /// Whether a recorded list has fed it.
    was_fed: bool,
    /// Whether a list of a former host has fed it, in whose place none has come since.
    is_outdated: bool,
    /// Since when it has no source.
    pub(super) waits_since: Instant,
    /// What has become known of its watch, and was not passed on yet: the policy may wait for other
    /// lists.
    pub(super) status: Option<Condition>,
}

/// A recorded list that feeds a stream.
#[derive(Clone, Copy, Debug)]
struct Source {
    segment: SegmentId,
    /// Whether the list has more fields.
    narrows: bool,
    /// Whether it has other namespaces too.
    filters: bool,
}

impl Feed {
    pub(super) fn new(spec: StreamSpec, now: Instant) -> Self {
        let mut fields = identity();
        fields.merge(&spec.fields);
        Self {
            spec,
            fields,
            source: None,
            was_fed: false,
            is_outdated: false,
            waits_since: now,
            status: None,
        }
    }

    /// Whether a recorded list feeds it.
    pub(super) const fn is_fed(&self) -> bool {
        self.source.is_some()
    }

    /// Whether this list feeds it.
    pub(super) fn is_fed_by(&self, segment: SegmentId) -> bool {
        self.source.is_some_and(|source| source.segment == segment)
    }

    /// The resource, as entries about streams name it.
    pub(super) fn resource(&self) -> String {
        self.spec.resource.to_string()
    }

    /// The kind of the objects, if it has all of them.
    pub(super) fn kind(&self, cluster: &Cluster) -> Option<GroupKind> {
        let spec = cluster.spec(self.source?.segment)?;
        let selectors = [&spec.namespace, &spec.label_selector, &spec.field_selector];
        let is_whole = selectors.into_iter().all(String::is_empty);
        let kind = &spec.kind;
        is_whole.then(|| (kind.group().into(), (*kind.kind).into()))
    }

    /// Whether the machine has only what a former host listed.
    pub(super) const fn is_outdated(&self) -> bool {
        self.is_outdated
    }

    /// The host that recorded has ended.
    pub(super) fn restart(&mut self, now: Instant) {
        self.status = None;
        self.is_outdated |= self.source.is_some();
        self.source = None;
        self.waits_since = now;
    }

    /// Other lists are recorded from now on. Returns whether another one feeds the stream.
    pub(super) fn follow(&mut self, history: &History, now: Instant) -> bool {
        let former = self.source.take();
        let is_enough = |list: &RecordedList| {
            list.is_listed && self.fits(list) && list.fields.covers(&self.fields)
        };
        let keeps = former.filter(|source| history.list(source.segment).is_some_and(is_enough));
        let found = match keeps {
            Some(source) => history.list(source.segment).map(|it| (source.segment, it)),
            None => history.lists().find(|(_, list)| is_enough(list)),
        };
        let source = found.map(|(segment, list)| Source {
            segment,
            // The views that show it may have changed.
            narrows: list.fields != self.fields,
            filters: list.spec.namespace != self.spec.namespace,
        });
        self.source = source;
        self.was_fed |= source.is_some();
        self.is_outdated &= source.is_none();
        if former.is_some() && source.is_none() {
            self.waits_since = now;
        }
        source.is_some() && keeps.is_none()
    }

    /// Whether a list has the objects of this stream.
    fn fits(&self, list: &RecordedList) -> bool {
        let SegmentSpec {
            resource,
            namespace,
            label_selector,
            field_selector,
            ..
        } = &*list.spec;
        *resource == self.spec.resource
            && *label_selector == self.spec.label_selector
            && *field_selector == self.spec.field_selector
            && (namespace.is_empty() || *namespace == self.spec.namespace)
    }

    /// The complete list.
    pub(super) fn reset(&self, cluster: &Cluster) -> Option<Update> {
        let source = self.source?;
        let spec = cluster.spec(source.segment)?;
        let members = cluster.history.members(source.segment);
        let members = members.chain(cluster.overlay.kept_in(spec));
        let items = members.filter_map(|held| {
            let object = cluster
                .overlay
                .project(held, &self.fields, source.narrows)?;
            self.admits(source, &object).then_some(object)
        });
        Some(Update::Reset {
            items: items.collect(),
            resource_version: cluster.history.last_version().to_string().into(),
        })
    }

    /// The object of the list that feeds it, as the stream has it; none if the stream does not
    /// have it.
    pub(super) fn object(
        &self,
        held: &VersionedObject,
        cluster: &Cluster,
    ) -> Option<ProjectedObject> {
        let source = self.source?;
        let overlay = &cluster.overlay;
        let object = overlay.project(held, &self.fields, source.narrows)?;
        self.admits(source, &object).then_some(object)
    }

    fn admits(&self, source: Source, object: &ProjectedObject) -> bool {
        !source.filters || *object.namespace == *self.spec.namespace
    }

    /// Why nothing feeds it, if the journal cannot do it. Nothing if it may only need time:
    /// controllers that come later list more. At the end of history, nothing comes.
    pub(super) fn refusal(
        &self,
        history: &History,
        mapping: &Mapping,
        is_end: bool,
    ) -> Option<Refusal> {
        let resource = &self.spec.resource;
        let name = resource.to_string();
        if secrets::are_of(resource)
            && let Some(path) = overlaps_secrets(&self.spec.fields)
        {
            return Some(Refusal::Fields {
                resource: name,
                fields: path.to_owned(),
            });
        }
        // A list that was recorded may be away for a while: a host starts, and the journal may
        // end before it has listed.
        if self.is_fed() || self.was_fed {
            return None;
        }
        let lists = history.lists().map(|(_, list)| list);
        let of_it: Vec<&RecordedList> = lists
            .filter(|list| list.spec.resource == *resource)
            .collect();
        if of_it.is_empty() {
            if !is_end {
                return None;
            }
            mapping.by_resource(resource)?;
            return Some(Refusal::Resource { resource: name });
        }
        let listed: Vec<&RecordedList> = of_it.into_iter().filter(|list| list.is_listed).collect();
        if listed.is_empty() {
            return None;
        }
        let fitting = listed.into_iter().filter(|list| self.fits(list));
        let missing = fitting.map(|list| missing(&self.fields, &list.fields));
        match missing.min_by_key(Vec::len) {
            None => Some(Refusal::Selectors {
                resource: name,
                selectors: self.selectors(),
            }),
            Some(missing) if missing.is_empty() => None,
            Some(missing) => Some(Refusal::Fields {
                resource: name,
                fields: missing.join(", "),
            }),
        }
    }

    fn selectors(&self) -> String {
        let StreamSpec {
            namespace,
            label_selector,
            field_selector,
            ..
        } = &self.spec;
        format!("namespace={namespace:?} labels={label_selector:?} fields={field_selector:?}")
    }
}

/// The declared paths that a list does not have.
pub(super) fn missing(wanted: &FieldTree, listed: &FieldTree) -> Vec<String> {
    let paths = wanted.paths().into_iter();
    let missing = paths.filter(|path| !listed.covers(&[path.clone()].iter().collect()));
    missing.map(|path| path.to_string()).collect()
}

/// The fields that every object has.
pub(super) fn identity() -> FieldTree {
    tree(&IDENTITY)
}

/// The first of these fields that a journal does not have of Secrets.
pub(super) fn overlaps_secrets(fields: &FieldTree) -> Option<&'static str> {
    let mut paths = SECRET_FIELDS.into_iter();
    paths.find(|path| fields.overlaps(&tree(&[path])))
}

/// The tree of paths that this module writes.
fn tree(paths: &[&str]) -> FieldTree {
    let paths: Vec<FieldPath> = paths.iter().filter_map(|path| path.parse().ok()).collect();
    paths.iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mapping::ServedResource;
    use crate::object::ApiResource;

    /// A host may have listed nothing yet when a policy starts that waits for no controller.
    #[test]
    fn a_resource_without_a_list_is_refused_at_the_end_of_history() {
        let resource = ApiResource::new("", "v1", "pods");
        let spec = StreamSpec {
            resource: resource.clone(),
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: FieldTree::All,
        };
        let mapping = Mapping::new([ServedResource {
            resource,
            kind: "Pod".into(),
            namespaced: true,
            verbs: ["list", "watch"].map(str::to_owned).into(),
            preferred: true,
        }]);
        let (feed, history) = (Feed::new(spec, Instant::ZERO), History::default());
        assert!(feed.refusal(&history, &mapping, false).is_none());
        let refusal = feed.refusal(&history, &mapping, true);
        assert!(matches!(refusal, Some(Refusal::Resource { resource }) if resource == "v1/pods"));
    }
}
