//! Which streams are followed: what the views need of what the API server
//! serves.

use std::collections::{BTreeMap, BTreeSet};

use davit_cluster::api::Api;
use davit_cluster::reflector::{Batch, Reflector, StreamId, StreamSpec, Update};
use davit_core::manifest::{Source, WatchSpec};
use davit_core::mapping::{Mapping, Served};
use davit_core::object::{ApiResource, Kind};
use davit_core::store::{Change, Feeds, SegmentId, SegmentSpec, Store, Taken, ViewId};
use davit_core::time::Instant;
use davit_core::watch::Settings;
use tokio::sync::mpsc;

/// A resource that is missing from this many complete discoveries in a row is
/// taken as gone: one can be a moment's mistake of an aggregated API server.
const MISSING_TWICE: u32 = 2;

/// The reflectors that run.
pub(super) struct Streams {
    api: Api,
    settings: Settings,
    seed: u64,
    updates: mpsc::Sender<Batch>,
    feeds: Feeds,
    running: BTreeMap<StreamId, Reflector>,
    /// In how many complete discoveries in a row a segment's resource was
    /// missing.
    missing: BTreeMap<SegmentId, u32>,
    /// The segments that were not listed yet when the last discovery was over.
    unlisted: BTreeSet<SegmentId>,
}

impl Streams {
    pub(super) fn new(
        api: Api,
        settings: Settings,
        seed: u64,
        updates: mpsc::Sender<Batch>,
    ) -> Self {
        Self {
            api,
            settings,
            seed,
            updates,
            feeds: Feeds::default(),
            running: BTreeMap::new(),
            missing: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }

    /// The segment that a stream fills or is to fill; none if it is no longer
    /// followed.
    pub(super) fn segment(&self, stream: StreamId) -> Option<SegmentId> {
        self.feeds.segment(stream)
    }

    /// Whether a stream fills its segment. Otherwise it only lists yet, for
    /// views that wait.
    pub(super) fn fills(&self, stream: StreamId) -> bool {
        self.feeds.fills(stream)
    }

    /// Takes what a stream says of its objects.
    pub(super) fn take(
        &mut self,
        store: &mut Store,
        stream: StreamId,
        update: Update,
        now: Instant,
        changes: &mut Vec<Change>,
    ) -> Taken {
        let feeds = &mut self.feeds;
        match update {
            Update::Apply(object) => feeds.apply(store, stream, object, now, changes),
            Update::Delete(object) => feeds.remove(store, stream, object, now, changes),
            Update::Reset {
                items,
                resource_version,
            } => {
                let taken = feeds.replace(store, stream, items, &resource_version, now, changes);
                taken.unwrap_or_else(|error| {
                    tracing::error!("a list is not taken: {error}");
                    Taken::News
                })
            }
            Update::Status(_) => Taken::News,
        }
    }

    /// Counts, after a complete discovery, which segments' resources were
    /// missing from it.
    pub(super) fn count_missing(&mut self, store: &Store, mapping: &Mapping) {
        self.missing = store
            .segments()
            .filter(|(_, spec)| mapping.by_resource(&spec.resource).is_none())
            .map(|(segment, _)| {
                let before = self.missing.get(&segment).copied().unwrap_or_default();
                (segment, before + 1)
            })
            .collect();
    }

    /// The segments that are not listed yet, as at the end of the discovery
    /// before. To be asked once for each discovery, when it is over.
    pub(super) fn overdue(&mut self, store: &Store) -> BTreeSet<SegmentId> {
        let segments = store.views().flat_map(|view| store.segments_of(view));
        let unlisted = segments
            .filter(|(_, ready)| !ready)
            .map(|(segment, _)| segment);
        let before = std::mem::replace(&mut self.unlisted, unlisted.collect());
        self.unlisted.intersection(&before).copied().collect()
    }

    /// Gives a view the segments that its watch is made of.
    pub(super) fn attach(
        &self,
        store: &mut Store,
        view: ViewId,
        watch: &WatchSpec,
        mapping: &Mapping,
        changes: &mut Vec<Change>,
    ) {
        let wanted: Vec<&Served> = wanted(&watch.source, mapping).collect();
        for served in &wanted {
            let attached = store.attach(view, &segment_spec(watch, served), changes);
            debug_assert!(attached.is_ok(), "{attached:?}");
        }
        let gone: Vec<SegmentId> = store
            .segments_of(view)
            .map(|(segment, _)| segment)
            .filter(|segment| {
                self.missing.get(segment) >= Some(&MISSING_TWICE)
                    || is_replaced(store, view, *segment, &wanted)
            })
            .collect();
        for segment in gone {
            store.detach(view, segment, changes);
        }
    }

    /// Follows every segment with the fields that its views read, and nothing
    /// else.
    pub(super) fn follow(&mut self, store: &Store) {
        self.feeds.follow(store);
        let feeds = &self.feeds;
        self.running.retain(|stream, _| feeds.contains(*stream));
        for (stream, feed) in feeds.iter() {
            if self.running.contains_key(&stream) {
                continue;
            }
            let Some(spec) = store.segment_spec(feed.segment) else {
                continue;
            };
            let reflector = Reflector::start(
                &self.api,
                StreamSpec {
                    resource: spec.resource.clone(),
                    namespace: spec.namespace.clone(),
                    label_selector: spec.label_selector.clone(),
                    field_selector: spec.field_selector.clone(),
                    fields: feed.fields.clone(),
                },
                self.settings.clone(),
                self.seed.wrapping_add(u64::from(stream.0)),
                stream,
                self.updates.clone(),
            );
            self.running.insert(stream, reflector);
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

/// Whether a view is complete enough for its controller to run. A resource
/// among many that does not sync holds up nobody.
pub(super) fn is_ready(store: &Store, view: ViewId, watch: &WatchSpec) -> bool {
    let mut segments = store.segments_of(view).peekable();
    match watch.source {
        Source::One(_) if segments.peek().is_none() => watch.optional,
        Source::One(_) => segments.all(|(_, ready)| ready),
        Source::EveryDeletable(_) => segments.any(|(_, ready)| ready),
    }
}

/// Whether a segment shows the objects of another one, which is followed in its
/// place: the API server prefers another version of the resource by now.
fn is_replaced(store: &Store, view: ViewId, segment: SegmentId, wanted: &[&Served]) -> bool {
    let resource = |segment| Some(&store.segment_spec(segment)?.resource);
    let is_wanted = |one: &ApiResource| wanted.iter().any(|served| served.resource == *one);
    let Some(former) = resource(segment).filter(|former| !is_wanted(former)) else {
        return false;
    };
    let mut ready = store.segments_of(view).filter(|(_, ready)| *ready);
    ready.any(|(other, _)| {
        resource(other).is_some_and(|latter| {
            latter.group == former.group && latter.plural == former.plural && is_wanted(latter)
        })
    })
}

fn wanted<'m>(
    source: &'m Source,
    mapping: &'m Mapping,
) -> Box<dyn Iterator<Item = &'m Served> + 'm> {
    match source {
        Source::One(resource) => Box::new(mapping.by_resource(resource).into_iter()),
        Source::EveryDeletable(except) => Box::new(mapping.deletable().filter(|served| {
            !except.iter().any(|resource| {
                resource.group == served.resource.group && resource.plural == served.resource.plural
            })
        })),
    }
}

fn segment_spec(watch: &WatchSpec, served: &Served) -> SegmentSpec {
    SegmentSpec {
        resource: served.resource.clone(),
        kind: Kind {
            api_version: served.resource.api_version().into(),
            kind: served.kind.as_str().into(),
        },
        namespaced: served.namespaced,
        namespace: watch.namespace.clone(),
        label_selector: watch.label_selector.clone(),
        field_selector: watch.field_selector.clone(),
    }
}
