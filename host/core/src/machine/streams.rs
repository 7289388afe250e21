//! Which streams run: those that the views need and the API server serves.

use std::collections::{BTreeMap, BTreeSet};

use crate::coverage::{Coverage, excepts};
use crate::manifest::{Source, WatchSpec};
use crate::mapping::{Mapping, ServedResource};
use crate::object::ApiResource;
use crate::observation::{InterruptedResource, PendingResource};
use crate::store::{
    Change, FeedUpdate, Feeds, MissingFields, SegmentId, SegmentSpec, Store, ViewId,
};
use crate::stream::{StreamId, StreamSpec, Update};
use crate::time::Instant;
use crate::watch::Condition;

/// The streams that run.
#[derive(Debug, Default)]
pub(super) struct Streams {
    feeds: Feeds,
    running: BTreeSet<StreamId>,
    /// Which resources the cache covers completely.
    pub(super) coverage: Coverage,
    /// The segments that were not listed at the end of the last discovery.
    pending: BTreeSet<SegmentId>,
    /// The streams that have listed their resource, and deliver its changes since.
    synced: BTreeSet<StreamId>,
    /// Why a stream does not deliver objects.
    hindrances: BTreeMap<StreamId, String>,
}

/// The streams to stop and to start.
#[derive(Debug, Default)]
pub(super) struct StreamChanges {
    pub(super) stop: Vec<StreamId>,
    pub(super) start: Vec<(StreamId, StreamSpec)>,
}

impl Streams {
    /// The segment that a stream fills, or will fill; none if the stream was stopped.
    pub(super) fn segment(&self, stream: StreamId) -> Option<SegmentId> {
        self.feeds.segment(stream)
    }

    /// Whether a stream fills its segment. Otherwise it is only listing, for views that
    /// wait.
    pub(super) fn fills(&self, stream: StreamId) -> bool {
        self.feeds.fills(stream)
    }

    /// Applies an update of a stream to the store.
    pub(super) fn update(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        update: Update,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Result<FeedUpdate, MissingFields> {
        let updated = self.feeds.update(store, stream, update, now, changes)?;
        if updated == FeedUpdate::List
            && let Some(segment) = self.feeds.segment(stream)
        {
            self.coverage.note_list(segment);
        }
        Ok(updated)
    }

    /// Records the condition of a stream.
    pub(super) fn note_condition(&mut self, stream: StreamId, condition: &Condition, now: Instant) {
        if let Some(segment) = self.feeds.segment(stream) {
            self.coverage.note_condition(segment, condition, now);
        }
    }

    /// Records why a stream does not deliver objects.
    pub(super) fn note_hindrance(&mut self, stream: StreamId, condition: &Condition) {
        if let Some(hindrance) = condition.hindrance() {
            self.synced.remove(&stream);
            self.hindrances.insert(stream, hindrance.to_owned());
        } else {
            self.synced.insert(stream);
            self.hindrances.remove(&stream);
        }
    }

    /// Whether the cache holds a complete list of each resource that streams fill: of all that is
    /// watched of it, in any namespace and by any selector.
    pub(super) fn synced(&self, store: &Store) -> BTreeMap<String, bool> {
        let mut resources = BTreeMap::new();
        for (stream, feed) in self.feeds.iter() {
            let spec = store.segment_spec(feed.segment);
            if let Some(spec) = spec.filter(|_| self.feeds.fills(stream)) {
                let all = resources.entry(spec.resource.to_string()).or_insert(true);
                *all &= self.synced.contains(&stream);
            }
        }
        resources
    }

    /// The resources that keep views from being complete: those that cannot be listed, or
    /// else those that are not listed yet.
    pub(super) fn pending(&self, store: &Store, views: &[ViewId]) -> Option<PendingResource> {
        let segments = views.iter().flat_map(|view| store.segments_of(*view));
        let pending = segments.filter(|(_, ready)| !ready);
        // Several watches may be of the same resource.
        let mut resources: BTreeMap<String, Option<String>> = BTreeMap::new();
        for (segment, _) in pending {
            let Some(spec) = store.segment_spec(segment) else {
                continue;
            };
            let mut streams = self.hindrances.iter();
            let hindrance = streams.find(|(stream, _)| self.segment(**stream) == Some(segment));
            let known = resources.entry(spec.resource.to_string()).or_default();
            *known = known.take().or(hindrance.map(|(_, one)| one.clone()));
        }
        if resources.values().any(Option::is_some) {
            resources.retain(|_, hindrance| hindrance.is_some());
        }
        let others = resources.len().saturating_sub(1);
        let (resource, hindrance) = resources.pop_first()?;
        Some(PendingResource {
            resource,
            hindrance,
            others,
        })
    }

    /// The oldest interruption of these watches, of what was listed. A watch of every resource is
    /// interrupted if all of them are: otherwise its guest learns of which it may lack objects.
    pub(super) fn interrupted<'w>(
        &self,
        store: &Store,
        watches: impl Iterator<Item = (ViewId, &'w WatchSpec)>,
    ) -> Option<InterruptedResource> {
        if !self.coverage.has_problems() {
            return None;
        }
        let interruption = |(view, watch): (ViewId, &WatchSpec)| {
            let listed = store.segments_of(view).filter(|(_, ready)| *ready);
            // The objects of a resource that is served no more may stay for hours.
            let served = listed.filter(|(segment, _)| !self.coverage.is_unserved(*segment));
            let interruptions =
                served.map(|(segment, _)| Some((self.coverage.interruption(segment)?, segment)));
            let interruptions: Vec<_> = interruptions.collect();
            let is_of_every = matches!(watch.source, Source::EveryDeletable(_));
            if is_of_every && interruptions.contains(&None) {
                return None;
            }
            interruptions.into_iter().flatten().min()
        };
        let ((since, reason), segment) = watches.filter_map(interruption).min()?;
        Some(InterruptedResource {
            resource: store.segment_spec(segment)?.resource.to_string(),
            reason: reason.to_owned(),
            since,
        })
    }

    /// The segments that are not listed, as they were not at the end of the previous
    /// discovery. Call it once for each discovery, at its end.
    pub(super) fn overdue(&mut self, store: &Store) -> BTreeSet<SegmentId> {
        let segments = store.views().flat_map(|view| store.segments_of(view));
        let pending = segments
            .filter(|(_, ready)| !ready)
            .map(|(segment, _)| segment);
        let before = std::mem::replace(&mut self.pending, pending.collect());
        self.pending.intersection(&before).copied().collect()
    }

    /// Attaches to a view the segments of its watch: the served resources, and the
    /// resources that are not served at the moment but cached by other views.
    pub(super) fn attach(
        store: &mut Store,
        view: ViewId,
        watch: &WatchSpec,
        mapping: &Mapping,
        changes: &mut Vec<Change>,
    ) {
        let served = wanted(&watch.source, mapping);
        let served = served.map(|served| SegmentSpec::of(watch, served));
        let kept = store.segments().map(|(_, spec)| spec);
        let kept = kept.filter(|spec| is_kept(spec, watch, mapping));
        let specs: Vec<SegmentSpec> = served.chain(kept.map(|spec| (**spec).clone())).collect();
        for spec in specs {
            let attached = store.attach(view, &spec, changes);
            debug_assert!(attached.is_ok(), "{attached:?}");
        }
    }

    /// Detaches segments from a view in which they have no objects to show any more.
    pub(super) fn detach(
        &self,
        store: &mut Store,
        view: ViewId,
        watch: &WatchSpec,
        mapping: &Mapping,
        now: Instant,
        changes: &mut Vec<Change>,
    ) {
        let segments = store.segments_of(view).map(|(segment, _)| segment);
        let gone: Vec<SegmentId> = segments
            .filter(|segment| {
                let is_gone = match watch.source {
                    Source::One(_) => self.coverage.is_missing(*segment),
                    // An object may still exist while its resource is not served.
                    Source::EveryDeletable(_) => self.coverage.is_gone(store, view, *segment, now),
                };
                is_gone || is_replaced(store, view, *segment, &watch.source, mapping)
            })
            .collect();
        for segment in gone {
            store.detach(view, segment, changes);
        }
    }

    /// Adjusts the streams to the views: one stream for every segment whose resource is
    /// served, and no others.
    pub(super) fn reconcile(&mut self, store: &Store, now: Instant) -> StreamChanges {
        self.coverage.forget_all_but(store);
        let coverage = &self.coverage;
        self.feeds
            .follow(store, |segment| !coverage.is_missing(segment));
        let feeds = &self.feeds;
        let stopped = self
            .running
            .extract_if(.., |stream| !feeds.contains(*stream));
        let mut changes = StreamChanges {
            stop: stopped.collect(),
            start: Vec::new(),
        };
        self.synced.retain(|stream| feeds.contains(*stream));
        self.hindrances.retain(|stream, _| feeds.contains(*stream));
        for (stream, feed) in feeds.iter() {
            if self.running.contains(&stream) {
                continue;
            }
            let Some(spec) = store.segment_spec(feed.segment) else {
                continue;
            };
            if feeds.fills(stream) {
                self.coverage.note_restart(feed.segment, now);
            }
            let spec = StreamSpec {
                resource: spec.resource.clone(),
                namespace: spec.namespace.clone(),
                label_selector: spec.label_selector.clone(),
                field_selector: spec.field_selector.clone(),
                fields: feed.fields.clone(),
            };
            changes.start.push((stream, spec));
            self.running.insert(stream);
        }
        changes
    }

    /// Lists resources immediately that are served again. Without this, a stream checks
    /// again only after a while. The next [`Self::reconcile`] starts the lists.
    pub(super) fn list_returned(&mut self) {
        let segments = self.feeds.iter().map(|(_, feed)| feed.segment);
        let waiting = segments.filter(|segment| self.coverage.waits_in_vain(*segment));
        for segment in waiting.collect::<BTreeSet<SegmentId>>() {
            self.feeds.list_again(segment);
        }
    }
}

/// The resource that a watch waits for because the API server does not serve
/// it.
pub(super) fn unserved<'w>(watch: &'w WatchSpec, mapping: &Mapping) -> Option<&'w ApiResource> {
    match &watch.source {
        Source::One(resource) if !watch.optional && mapping.by_resource(resource).is_none() => {
            Some(resource)
        }
        Source::One(_) | Source::EveryDeletable(_) => None,
    }
}

/// Whether a view is complete enough for its controller to run. In a watch of many
/// resources, one that does not sync delays no controller.
pub(super) fn is_ready(store: &Store, view: ViewId, watch: &WatchSpec) -> bool {
    let mut segments = store.segments_of(view).peekable();
    match watch.source {
        Source::One(_) if segments.peek().is_none() => watch.optional,
        Source::One(_) => segments.all(|(_, ready)| ready),
        Source::EveryDeletable(_) => segments.any(|(_, ready)| ready),
    }
}

/// Whether a segment shows the objects of another one, which replaces it: the API
/// server prefers another version of the resource by now.
fn is_replaced(
    store: &Store,
    view: ViewId,
    segment: SegmentId,
    source: &Source,
    mapping: &Mapping,
) -> bool {
    let resource = |segment| Some(&store.segment_spec(segment)?.resource);
    let is_wanted = |one: &&ApiResource| is_wanted(source, mapping, one);
    let Some(former) = resource(segment).filter(|former| !is_wanted(former)) else {
        return false;
    };
    let mut ready = store.segments_of(view).filter(|(_, ready)| *ready);
    ready.any(|(other, _)| {
        resource(other).is_some_and(|latter| {
            latter.group == former.group && latter.plural == former.plural && is_wanted(&latter)
        })
    })
}

/// Whether a segment has a resource that a watch would include if it was served: its
/// objects may still exist.
fn is_kept(spec: &SegmentSpec, watch: &WatchSpec, mapping: &Mapping) -> bool {
    let Source::EveryDeletable(except) = &watch.source else {
        return false;
    };
    mapping.by_resource(&spec.resource).is_none()
        && !excepts(except, &spec.resource.group, &spec.resource.plural)
        && spec.namespace == watch.namespace
        && spec.label_selector == watch.label_selector
        && spec.field_selector == watch.field_selector
}

/// Whether a resource is among the [`wanted`] ones. Every list asks for every segment, and
/// nearly all are wanted.
fn is_wanted(source: &Source, mapping: &Mapping, resource: &ApiResource) -> bool {
    let served = mapping.by_resource(resource);
    served.is_some_and(|served| match source {
        Source::One(one) => one == resource,
        Source::EveryDeletable(except) => {
            served.is_deletable() && !excepts(except, &resource.group, &resource.plural)
        }
    })
}

/// The served resources that a watch includes.
fn wanted<'m>(
    source: &'m Source,
    mapping: &'m Mapping,
) -> Box<dyn Iterator<Item = &'m ServedResource> + 'm> {
    match source {
        Source::One(resource) => Box::new(mapping.by_resource(resource).into_iter()),
        Source::EveryDeletable(except) => Box::new(mapping.deletable().filter(|served| {
            let ApiResource { group, plural, .. } = &served.resource;
            !excepts(except, group, plural)
        })),
    }
}
