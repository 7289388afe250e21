//! Coverage: of which resources the cache may lack objects.
//!
//! A resource is covered while its stream is synced and its watch is open. A resource
//! that is not served any more is unknown, not absent: its objects may still be stored,
//! and the cache keeps what it holds of them. It is gone when its
//! `CustomResourceDefinition` is deleted, because the API server deletes the objects
//! first. An aggregated API server keeps its objects when its `APIService` is deleted,
//! and may be registered again: its resources count as gone after six hours.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::manifest::{Source, WatchSpec};
use crate::mapping::Mapping;
use crate::object::{ApiResource, group_of};
use crate::store::{SegmentId, Store, ViewId};
use crate::throttle::cause_of;
use crate::time::Instant;
use crate::watch::Condition;

/// How long a watch must be open again before the cache counts as up to date.
pub(crate) const CATCH_UP: Duration = Duration::from_secs(2);

/// How long the `APIService` must be deleted before its resources count as gone.
const DEREGISTERED: Duration = Duration::from_hours(6);

/// The number of complete discoveries in a row without a resource after which it counts
/// as not served. One alone can be a short failure of an aggregated API server.
const MISSING_TWICE: u32 = 2;

/// A resource of which a view may lack objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnlistedResource {
    /// The API group.
    pub group: String,
    /// The plural name; empty for all resources of the group.
    pub plural: String,
    /// Since when.
    pub since: Instant,
    /// Why.
    pub reason: Gap,
}

/// The resources of which each view may lack objects.
pub type UnlistedResourcesByView = Arc<BTreeMap<ViewId, Vec<UnlistedResource>>>;

/// Why a resource is not covered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gap {
    /// It is not listed yet with the fields that the view needs.
    NotListed,
    /// Its watch is interrupted.
    Interrupted,
    /// It is not served at the moment.
    NotServed,
    /// Discovery of its group has never succeeded.
    Silent,
}

impl Gap {
    /// The reason in words.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotListed => "it could not be listed yet",
            Self::Interrupted => "its watch is interrupted",
            Self::NotServed => "it is not served at the moment",
            Self::Silent => "its group has not answered discovery",
        }
    }
}

/// Why a segment's objects may be as they were. A segment without one is up to date.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Problem {
    kind: StreamProblem,
    /// When it started, and the first text of its present cause.
    since: Instant,
    reason: String,
}

/// The problem of a segment's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamProblem {
    Interrupted,
    NotServed,
    /// The watch is open again since then, and may not have caught up.
    CatchesUp(Instant),
}

/// The resource that defines custom resources.
const DEFINITIONS: (&str, &str) = ("apiextensions.k8s.io", "customresourcedefinitions");
/// The resource that registers aggregated API servers, and every other group version.
const REGISTRATIONS: (&str, &str) = ("apiregistration.k8s.io", "apiservices");

/// The state from which coverage is derived.
#[derive(Debug, Default)]
pub struct Coverage {
    problems: BTreeMap<SegmentId, Problem>,
    /// The number of complete discoveries in a row without the segment's resource.
    missing: BTreeMap<SegmentId, u32>,
    /// The names of all definitions so far.
    defined: BTreeSet<String>,
    /// The names of all `APIService`s so far.
    registered: BTreeSet<String>,
    /// The segments whose `APIService` is deleted, with the time at which the cache
    /// observed that.
    deregistered: BTreeMap<SegmentId, Instant>,
    /// The groups with a version whose discovery has never succeeded.
    silent: BTreeSet<String>,
    since: BTreeMap<(ViewId, Name), Instant>,
}

/// A resource by group and plural name: its versions have the same objects.
type Name = (String, String);
/// The same, of a resource that the mapping or the store holds: most have no gap, and
/// their names are not copied.
type NameRef<'a> = (&'a str, &'a str);

impl Coverage {
    /// The condition of a segment's stream changed.
    pub fn note_condition(&mut self, segment: SegmentId, condition: &Condition, now: Instant) {
        let Some(reason) = condition.hindrance() else {
            if let Some(problem) = self.problems.get_mut(&segment) {
                problem.kind = StreamProblem::CatchesUp(now);
            }
            return;
        };
        let problem = self.note_problem(segment, reason, now);
        problem.kind = if *condition == Condition::NotServed {
            StreamProblem::NotServed
        } else {
            StreamProblem::Interrupted
        };
        // A stream that tries again has other numbers in its reason.
        if cause_of(&problem.reason) != cause_of(reason) {
            reason.clone_into(&mut problem.reason);
        }
    }

    /// The problem of a segment, which starts now unless it has one.
    fn note_problem(&mut self, segment: SegmentId, reason: &str, now: Instant) -> &mut Problem {
        self.problems.entry(segment).or_insert_with(|| Problem {
            kind: StreamProblem::Interrupted,
            since: now,
            reason: reason.to_owned(),
        })
    }

    /// A segment was listed completely.
    pub fn note_list(&mut self, segment: SegmentId) {
        self.problems.remove(&segment);
    }

    /// The stream of a segment starts again: its objects are as old as the former
    /// stream.
    pub fn note_restart(&mut self, segment: SegmentId, now: Instant) {
        self.note_problem(segment, "its watch starts again", now);
    }

    /// Handles the result of a discovery: the mapping, and the group versions that
    /// failed. `before` is the former mapping.
    pub fn note_discovery(
        &mut self,
        store: &Store,
        before: Option<&Mapping>,
        mapping: &Mapping,
        failed: &[String],
    ) {
        let is_complete = failed.is_empty();
        let former = std::mem::take(&mut self.missing);
        let missing = store
            .segments()
            .filter(|(_, spec)| mapping.by_resource(&spec.resource).is_none())
            .map(|(segment, _)| {
                let times = former.get(&segment).copied().unwrap_or_default();
                (segment, times + u32::from(is_complete))
            });
        self.missing = missing.collect();
        // A group version that answered before is known by its resources.
        let answered = |version: &String| {
            let mut served = before.into_iter().flat_map(Mapping::iter);
            served.any(|it| it.resource.api_version() == *version)
        };
        let silent = failed.iter().filter(|version| !answered(version));
        self.silent = silent.map(|version| group_of(version).to_owned()).collect();
    }

    /// Whether the cache shows what happens to the objects of a segment: its watch is neither
    /// interrupted nor catching up after that.
    #[must_use]
    pub fn is_current(&self, segment: SegmentId) -> bool {
        !self.problems.contains_key(&segment)
    }

    /// Whether any segment is not up to date.
    #[must_use]
    pub fn has_problems(&self) -> bool {
        !self.problems.is_empty()
    }

    fn kind(&self, segment: SegmentId) -> Option<StreamProblem> {
        Some(self.problems.get(&segment)?.kind)
    }

    /// Since when and why the cache does not show what happens to the objects of a segment, although
    /// discovery says that its resource is served.
    #[must_use]
    pub fn interruption(&self, segment: SegmentId) -> Option<(Instant, &str)> {
        let problem = self.problems.get(&segment)?;
        let is_back = matches!(problem.kind, StreamProblem::CatchesUp(_));
        let is_interrupted = !is_back && !self.is_unserved(segment);
        is_interrupted.then_some((problem.since, problem.reason.as_str()))
    }

    /// Whether discovery says that a segment's resource is not served any more.
    #[must_use]
    pub fn is_missing(&self, segment: SegmentId) -> bool {
        self.missing.get(&segment) >= Some(&MISSING_TWICE)
    }

    /// Whether a segment's stream waits for its resource although discovery says that
    /// it is served.
    #[must_use]
    pub fn waits_in_vain(&self, segment: SegmentId) -> bool {
        self.kind(segment) == Some(StreamProblem::NotServed) && !self.missing.contains_key(&segment)
    }

    /// Ends the catch-up of streams. Returns whether one has caught up. Call it about
    /// once a second.
    pub fn expire(&mut self, now: Instant) -> bool {
        let before = self.problems.len();
        self.problems.retain(|_, problem| match problem.kind {
            StreamProblem::CatchesUp(since) => now.since(since) < CATCH_UP,
            StreamProblem::Interrupted | StreamProblem::NotServed => true,
        });
        self.problems.len() < before
    }

    /// Whether the API server serves a segment's resource no more, as far as discovery knows.
    #[must_use]
    pub fn is_unserved(&self, segment: SegmentId) -> bool {
        self.is_not_served(segment) && !self.waits_in_vain(segment)
    }

    /// Whether the objects of a segment are gone: its resource is not served, and
    /// either its definition is deleted, and its objects with it, or its `APIService`
    /// has been deleted for hours.
    #[must_use]
    pub fn is_gone(&self, store: &Store, view: ViewId, segment: SegmentId, now: Instant) -> bool {
        let Some(spec) = store.segment_spec(segment) else {
            return true;
        };
        if !self.is_not_served(segment) {
            return false;
        }
        let name = name_of(&spec.resource);
        if !self.defined.contains(&definition_of(name)) {
            let deregistered = self.deregistered.get(&segment);
            return deregistered.is_some_and(|since| now.since(*since) >= DEREGISTERED);
        }
        let definitions = self.covered(store, view, DEFINITIONS);
        self.is_undefined(store, definitions, name)
    }

    /// Whether a resource had a definition that is deleted.
    fn is_undefined(
        &self,
        store: &Store,
        definitions: Option<SegmentId>,
        name: NameRef<'_>,
    ) -> bool {
        let definition = definition_of(name);
        self.defined.contains(&definition)
            && definitions.is_some_and(|it| !store.holds(it, &definition))
    }

    /// Whether discovery, or the answer to a list, says that a segment's resource
    /// is not served.
    fn is_not_served(&self, segment: SegmentId) -> bool {
        self.is_missing(segment) || self.kind(segment) == Some(StreamProblem::NotServed)
    }

    /// The resources of which a view may lack objects.
    pub fn unlisted(
        &mut self,
        store: &Store,
        view: ViewId,
        watch: &WatchSpec,
        mapping: &Mapping,
        now: Instant,
    ) -> Vec<UnlistedResource> {
        self.note_servers(store, view, now);
        let mut gaps: BTreeMap<NameRef<'_>, Option<Gap>> = BTreeMap::new();
        for (segment, ready) in store.segments_of(view) {
            let Some(spec) = store.segment_spec(segment) else {
                continue;
            };
            let gap = self.gap(store, view, segment, ready, now);
            // One covered version of a resource is enough.
            gaps.entry(name_of(&spec.resource))
                .and_modify(|known| *known = (*known).and(gap))
                .or_insert(gap);
        }
        match &watch.source {
            Source::One(resource) => {
                gaps.entry(name_of(resource))
                    .or_insert(Some(Gap::NotServed));
            }
            Source::EveryDeletable(except) => {
                let known: BTreeSet<NameRef<'_>> =
                    mapping.iter().map(|it| name_of(&it.resource)).collect();
                let definitions = self.covered(store, view, DEFINITIONS);
                // A resource may have returned after it counted as gone and before the
                // next discovery starts its stream.
                let served = mapping.deletable().map(|it| name_of(&it.resource));
                for name in served.filter(|(group, plural)| !excepts(except, group, plural)) {
                    let is_known = gaps.contains_key(&name);
                    if !is_known && !self.is_undefined(store, definitions, name) {
                        gaps.insert(name, Some(Gap::NotListed));
                    }
                }
                let names = definitions.into_iter().flat_map(|it| store.keys_of(it));
                for name in names.filter_map(|name| name.split_once('.')) {
                    let (plural, group) = name;
                    let name = (group, plural);
                    if !known.contains(&name) && !excepts(except, group, plural) {
                        gaps.entry(name).or_insert(Some(Gap::NotServed));
                    }
                }
                let silent = self.silent.iter().filter(|it| !excepts(except, it, "*"));
                for group in silent {
                    gaps.insert((group.as_str(), ""), Some(Gap::Silent));
                }
            }
        }
        with_since(&mut self.since, view, &gaps, now)
    }

    /// Drops the state of removed segments and views.
    pub fn forget_all_but(&mut self, store: &Store) {
        let is_there = |segment: &SegmentId| store.segment_spec(*segment).is_some();
        self.problems.retain(|segment, _| is_there(segment));
        self.missing.retain(|segment, _| is_there(segment));
        self.deregistered.retain(|segment, _| is_there(segment));
        self.since
            .retain(|(view, _), _| store.view(*view).is_some());
    }

    /// Why a view may lack objects of a segment; none if it lacks none.
    fn gap(
        &self,
        store: &Store,
        view: ViewId,
        segment: SegmentId,
        ready: bool,
        now: Instant,
    ) -> Option<Gap> {
        if self.is_not_served(segment) {
            let is_gone = self.is_gone(store, view, segment, now);
            return (!is_gone).then_some(Gap::NotServed);
        }
        if !ready {
            return Some(Gap::NotListed);
        }
        let is_behind = self.problems.contains_key(&segment);
        is_behind.then_some(Gap::Interrupted)
    }

    /// Records which definitions and `APIService`s exist.
    fn note_servers(&mut self, store: &Store, view: ViewId, now: Instant) {
        let segments = store.segments();
        let definitions = segments.filter(|(_, spec)| is_named(&spec.resource, DEFINITIONS));
        let names = definitions.flat_map(|(segment, _)| store.keys_of(segment));
        note_all(&mut self.defined, names);
        let Some(registrations) = self.covered(store, view, REGISTRATIONS) else {
            return;
        };
        note_all(&mut self.registered, store.keys_of(registrations));
        for (segment, spec) in store.segments() {
            let ApiResource { group, version, .. } = &spec.resource;
            let name = format!("{version}.{group}");
            if store.holds(registrations, &name) {
                self.deregistered.remove(&segment);
            } else if self.registered.contains(&name) {
                self.deregistered.entry(segment).or_insert(now);
            }
        }
    }

    /// The segment of this resource in a view, if it is covered.
    fn covered(&self, store: &Store, view: ViewId, resource: (&str, &str)) -> Option<SegmentId> {
        let mut segments = store.segments_of(view);
        let (segment, _) = segments.find(|(segment, ready)| {
            *ready
                && !self.problems.contains_key(segment)
                && !self.is_missing(*segment)
                && store
                    .segment_spec(*segment)
                    .is_some_and(|spec| is_named(&spec.resource, resource))
        })?;
        Some(segment)
    }
}

/// Adds names to those that are known. Nearly all of them are known already.
fn note_all<'a>(known: &mut BTreeSet<String>, names: impl Iterator<Item = &'a str>) {
    for name in names {
        if !known.contains(name) {
            known.insert(name.to_owned());
        }
    }
}

/// The resources of a view with a gap, each with the time since when it is unlisted.
fn with_since(
    since: &mut BTreeMap<(ViewId, Name), Instant>,
    view: ViewId,
    gaps: &BTreeMap<NameRef<'_>, Option<Gap>>,
    now: Instant,
) -> Vec<UnlistedResource> {
    since.retain(|(of, (group, plural)), _| {
        let name = (group.as_str(), plural.as_str());
        *of != view || gaps.get(&name).copied().flatten().is_some()
    });
    let open = gaps.iter().filter_map(|(name, gap)| Some((name, (*gap)?)));
    open.map(|((group, plural), reason)| {
        let (group, plural) = ((*group).to_owned(), (*plural).to_owned());
        let name = (group.clone(), plural.clone());
        UnlistedResource {
            since: *since.entry((view, name)).or_insert(now),
            group,
            plural,
            reason,
        }
    })
    .collect()
}

/// Whether a watch of every deletable resource excludes this one. `*` stands for all
/// resources of a group.
#[must_use]
pub fn excepts(except: &[ApiResource], group: &str, plural: &str) -> bool {
    let mut except = except.iter();
    except.any(|it| it.group == group && (it.plural == plural || it.plural == "*"))
}

/// Whether the objects of a resource are definitions of custom resources.
#[must_use]
pub fn is_definitions(resource: &ApiResource) -> bool {
    is_named(resource, DEFINITIONS)
}

fn is_named(resource: &ApiResource, (group, plural): (&str, &str)) -> bool {
    resource.group == group && resource.plural == plural
}

fn name_of(resource: &ApiResource) -> NameRef<'_> {
    (&resource.group, &resource.plural)
}

/// The name of a resource's definition.
fn definition_of((group, plural): NameRef<'_>) -> String {
    format!("{plural}.{group}")
}
