//! Which streams are followed: what the views need of what the API server
//! serves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use davit_cluster::api::Api;
use davit_cluster::reflector::{Batch, Reflector, StreamId, StreamSpec};
use davit_core::manifest::{Source, WatchSpec};
use davit_core::mapping::{Mapping, Served};
use davit_core::object::{ApiResource, Kind};
use davit_core::store::{Change, SegmentId, SegmentSpec, Store, ViewId};
use davit_core::watch::Settings;
use tokio::sync::mpsc;

/// A resource that is missing from this many complete discoveries in a row is
/// taken as gone: one can be a moment's mistake of an aggregated API server.
const MISSING_TWICE: u32 = 2;

/// The reflectors that run, one for each segment of the store.
pub(super) struct Streams {
    api: Api,
    settings: Settings,
    seed: u64,
    updates: mpsc::Sender<Batch>,
    running: BTreeMap<SegmentId, (StreamId, Reflector)>,
    segments: BTreeMap<StreamId, SegmentId>,
    next: u32,
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
            running: BTreeMap::new(),
            segments: BTreeMap::new(),
            next: 0,
            missing: BTreeMap::new(),
            unlisted: BTreeSet::new(),
        }
    }

    /// The segment that a stream fills; none if it is no longer followed.
    pub(super) fn segment(&self, stream: StreamId) -> Option<SegmentId> {
        self.segments.get(&stream).copied()
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
    pub(super) fn follow(&mut self, store: &mut Store) {
        let wanted = store.segments();
        let wanted: BTreeMap<SegmentId, _> = wanted
            .map(|(segment, spec)| (segment, Arc::clone(spec)))
            .collect();
        self.running.retain(|segment, (stream, _)| {
            let keep = wanted.contains_key(segment);
            if !keep {
                self.segments.remove(stream);
            }
            keep
        });
        for (segment, spec) in wanted {
            let Some(fields) = store.segment_fields(segment) else {
                continue;
            };
            if let Some((_, reflector)) = self.running.get(&segment) {
                if store.needs_list(segment) {
                    store.asked_for(segment, fields.clone());
                    reflector.set_fields(fields);
                }
                continue;
            }
            store.asked_for(segment, fields.clone());
            let stream = StreamId(self.next);
            self.next += 1;
            let reflector = Reflector::start(
                &self.api,
                StreamSpec {
                    resource: spec.resource.clone(),
                    namespace: spec.namespace.clone(),
                    label_selector: spec.label_selector.clone(),
                    field_selector: spec.field_selector.clone(),
                    fields,
                },
                self.settings.clone(),
                self.seed.wrapping_add(u64::from(stream.0)),
                stream,
                self.updates.clone(),
            );
            self.segments.insert(stream, segment);
            self.running.insert(segment, (stream, reflector));
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
