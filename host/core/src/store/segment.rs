//! Segments: the lists of objects that watches consist of.

use std::sync::Arc;

use super::pack::Dictionary;
use super::{FieldsId, ViewId};
use crate::manifest::WatchSpec;
use crate::mapping::ServedResource;
use crate::object::{ApiResource, Kind, ProjectedObject};
use crate::path::FieldTree;
use crate::secrets;

/// The number of a segment; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SegmentId(pub u32);

/// One list of a resource's objects. Watches with the same resource and selectors share
/// it, whatever fields each of them reads.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentSpec {
    /// The resource.
    pub resource: ApiResource,
    /// The kind of its objects.
    pub kind: Kind,
    /// Whether its objects are namespaced.
    pub namespaced: bool,
    /// The namespace; empty for all.
    pub namespace: String,
    /// The label selector; empty for all objects.
    pub label_selector: String,
    /// The field selector; empty for all objects.
    pub field_selector: String,
}

impl SegmentSpec {
    /// All objects of a resource.
    #[must_use]
    pub fn new(resource: ApiResource, kind: &str, namespaced: bool) -> Self {
        Self {
            kind: Kind {
                api_version: resource.api_version().into(),
                kind: kind.into(),
            },
            resource,
            namespaced,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
        }
    }

    /// The objects of a served resource that a watch selects.
    #[must_use]
    pub fn of(watch: &WatchSpec, served: &ServedResource) -> Self {
        Self {
            namespace: watch.namespace.clone(),
            label_selector: watch.label_selector.clone(),
            field_selector: watch.field_selector.clone(),
            ..Self::new(served.resource.clone(), &served.kind, served.namespaced)
        }
    }

    /// Whether an object may leave the list without being deleted, because it matches no longer.
    pub(crate) fn is_selected(&self) -> bool {
        !self.label_selector.is_empty() || !self.field_selector.is_empty()
    }
}

/// The writer's side of a segment.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) spec: Arc<SegmentSpec>,
    /// The fields of its last list; none before the first one.
    pub(super) listed: Option<FieldTree>,
    /// Its views, grouped by the fields that they read.
    pub(super) readers: Vec<Reader>,
    /// All fields that its views read. Stored, because every list of any segment asks
    /// every segment for them.
    fields: FieldTree,
    /// The size of its objects' data and keys in memory, in bytes.
    pub(super) bytes: usize,
    /// What its next objects are compressed with.
    pub(super) dictionary: Option<Arc<Dictionary>>,
}

/// The views of one segment that read the same fields.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) fields: FieldsId,
    pub(super) tree: Arc<FieldTree>,
    pub(super) views: Vec<ViewId>,
    /// Whether the segment was listed with all fields that they read. Only then do they
    /// show its objects.
    pub(super) ready: bool,
}

impl Segment {
    pub(super) fn new(spec: SegmentSpec) -> Self {
        Self {
            spec: Arc::new(spec),
            listed: None,
            readers: Vec::new(),
            fields: FieldTree::default(),
            bytes: 0,
            dictionary: None,
        }
    }

    /// Chooses the sample for the objects of a list. Secrets have none, because it outlives
    /// its sample.
    pub(super) fn choose_dictionary(&mut self, items: &[ProjectedObject]) {
        self.dictionary = None;
        if self.may_have_samples() {
            self.dictionary = Dictionary::best_of(items);
        }
    }

    /// The dictionary for an object with this data: without one, the object is the sample for
    /// those after it.
    pub(super) fn dictionary_for(&mut self, data: &[u8]) -> Option<&Arc<Dictionary>> {
        if self.dictionary.is_none() && self.may_have_samples() {
            self.dictionary = Dictionary::of(data);
        }
        self.dictionary.as_ref()
    }

    fn may_have_samples(&self) -> bool {
        !secrets::are_of(&self.spec.resource)
    }

    /// All fields that its views read.
    pub(super) fn fields(&self) -> &FieldTree {
        &self.fields
    }

    /// Adds a view, and returns whether the view can show the objects immediately.
    pub(super) fn join(&mut self, view: ViewId, fields: FieldsId, tree: &Arc<FieldTree>) -> bool {
        if let Some(reader) = self.readers.iter_mut().find(|r| r.fields == fields) {
            reader.views.push(view);
            return reader.ready;
        }
        let ready = self.listed.as_ref().is_some_and(|had| had.covers(tree));
        self.fields.merge(tree);
        self.readers.push(Reader {
            fields,
            tree: Arc::clone(tree),
            views: vec![view],
            ready,
        });
        ready
    }

    /// Removes a view.
    pub(super) fn leave(&mut self, view: ViewId) {
        for reader in &mut self.readers {
            reader.views.retain(|other| *other != view);
        }
        let before = self.readers.len();
        self.readers.retain(|reader| !reader.views.is_empty());
        if self.readers.len() < before {
            self.fields = FieldTree::default();
            for reader in &self.readers {
                self.fields.merge(&reader.tree);
            }
        }
    }

    /// The views that show the objects, in their order.
    pub(super) fn ready_views(&self) -> Vec<ViewId> {
        let ready = self.readers.iter().filter(|reader| reader.ready);
        let mut views: Vec<ViewId> = ready.flat_map(|reader| &reader.views).copied().collect();
        views.sort_unstable();
        views
    }
}
