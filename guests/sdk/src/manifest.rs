//! Constructors for manifests.
//!
//! None of them is inlined: a component makes one manifest, and its code would be a twentieth of
//! the component.

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::bindings::davit::controller::manifests::{self as wit, IndexFilter, Rate};
use crate::{
    ApiResource, IndexName, Manifest, Metric, QueueName, QueueSpec, Tick, Trigger,
    TriggerCondition, TriggerKey, WatchName, covers, fields_of,
};

impl Manifest {
    /// A controller that needs nothing yet.
    #[must_use]
    #[inline(never)]
    pub fn new(name: &str, version: &str, summary: &str) -> Self {
        Self {
            name: name.to_owned(),
            version: version.to_owned(),
            summary: summary.to_owned(),
            watches: Vec::new(),
            triggers: Vec::new(),
            queues: Vec::new(),
            ticks: Vec::new(),
            permissions: Vec::new(),
            metrics: Vec::new(),
            config_schema: "{}".to_owned(),
        }
    }

    /// Adds a watch.
    #[must_use]
    #[inline(never)]
    pub fn watch<T>(mut self, watch: Watch<T>) -> Self {
        self.watches.push(watch.spec);
        self
    }

    /// Adds a trigger.
    #[must_use]
    #[inline(never)]
    pub fn trigger(mut self, trigger: Trigger) -> Self {
        self.triggers.push(trigger);
        self
    }

    /// Adds a queue.
    #[must_use]
    #[inline(never)]
    pub fn queue(mut self, queue: QueueSpec) -> Self {
        self.queues.push(queue);
        self
    }

    /// Adds an item that the host enqueues at the start, and again a period of at least
    /// 100 ms after it was last done. So a tick never overlaps itself.
    #[must_use]
    #[inline(never)]
    pub fn tick(mut self, queue: QueueName, key: &str, period: Duration) -> Self {
        self.ticks.push(Tick {
            queue: queue.as_str().to_owned(),
            key: key.to_owned(),
            period: milliseconds(period),
        });
        self
    }

    /// Adds a metric.
    #[must_use]
    #[inline(never)]
    pub fn metric(mut self, metric: impl Into<Metric>) -> Self {
        self.metrics.push(metric.into());
        self
    }

    /// The JSON Schema of the configuration: `include_str!("../config.schema.json")`.
    #[must_use]
    #[inline(never)]
    pub fn config_schema(mut self, schema: &str) -> Self {
        schema.clone_into(&mut self.config_schema);
        self
    }
}

/// A watch whose objects are read through the view `T`.
///
/// ```
/// use davit_guest::{Index, IndexName, View, Watch, WatchName, resources};
///
/// const PODS: WatchName<Pod> = WatchName::new("pods");
/// const BY_NODE: IndexName<Pod> = IndexName::new("node");
///
/// #[derive(Default, View)]
/// struct Pod {
///     #[view(path = "spec.nodeName")]
///     node: String,
/// }
///
/// let watch = Watch::of(PODS, resources::PODS).index(Index::new(BY_NODE, "spec.nodeName"));
/// ```
#[derive(Clone, Debug)]
pub struct Watch<T> {
    spec: wit::Watch,
    name: WatchName<T>,
}

impl<T: DeserializeOwned> Watch<T> {
    /// Watches one resource in all namespaces, with the fields that the view
    /// reads.
    #[must_use]
    pub fn of(name: WatchName<T>, resource: impl Into<ApiResource>) -> Self {
        Self::from_source(name, wit::Source::One(resource.into()))
    }

    /// Watches the metadata of every resource that can be listed, watched and
    /// deleted, except these.
    #[must_use]
    pub fn every_deletable(name: WatchName<T>, except: Vec<ApiResource>) -> Self {
        Self::from_source(name, wit::Source::EveryDeletable(except))
    }

    /// Watches fields of one resource in all namespaces that follow from the
    /// configuration, such as `spec.nodeName`.
    #[must_use]
    pub fn of_fields(
        name: WatchName<T>,
        resource: impl Into<ApiResource>,
        fields: Vec<String>,
    ) -> Self {
        Self::new(name, wit::Source::One(resource.into()), fields)
    }

    fn from_source(name: WatchName<T>, source: wit::Source) -> Self {
        Self::new(name, source, fields_of::<T>())
    }

    #[inline(never)]
    fn new(name: WatchName<T>, source: wit::Source, fields: Vec<String>) -> Self {
        Self {
            spec: wit::Watch {
                name: name.as_str().to_owned(),
                source,
                namespace: String::new(),
                label_selector: String::new(),
                field_selector: String::new(),
                fields,
                indexes: Vec::new(),
                optional: false,
            },
            name,
        }
    }

    /// Also watches the fields of another view.
    #[must_use]
    pub(crate) fn with_fields_of<V: DeserializeOwned>(mut self) -> Self {
        for field in fields_of::<V>() {
            self = self.with_field(&field);
        }
        self
    }

    fn with_field(mut self, path: &str) -> Self {
        let fields = &mut self.spec.fields;
        if !fields.iter().any(|field| covers(field, path)) {
            fields.push(path.to_owned());
        }
        self
    }

    pub(crate) fn name(&self) -> WatchName<T> {
        self.name
    }

    /// Only the objects of this namespace.
    #[must_use]
    #[inline(never)]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.spec.namespace);
        self
    }

    /// Only the objects that these selectors match; empty for all.
    #[must_use]
    pub fn select(mut self, labels: &str, fields: &str) -> Self {
        labels.clone_into(&mut self.spec.label_selector);
        fields.clone_into(&mut self.spec.field_selector);
        self
    }

    /// Adds an index. Its paths are added to the fields if the view does not
    /// read them.
    #[must_use]
    #[inline(never)]
    pub fn index(mut self, index: Index<T>) -> Self {
        let Index { spec: index, .. } = index;
        for path in std::iter::once(&index.path).chain(&index.order) {
            if !IDENTITY.contains(&path.as_str()) {
                self = self.with_field(path);
            }
        }
        self.spec.indexes.push(index);
        self
    }

    /// Lets the controller run while the resource is not served.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.spec.optional = true;
        self
    }
}

/// What every object has without a declaration.
const IDENTITY: [&str; 3] = ["metadata.name", "metadata.namespace", "metadata.uid"];

/// An index over objects of the view `T`.
#[derive(Clone, Debug, PartialEq)]
pub struct Index<T> {
    spec: wit::Index,
    view: PhantomData<fn() -> T>,
}

impl<T> Index<T> {
    /// An index over the values at a path, also through lists
    /// (`spec.taints[*].key`). Objects without a value are not in it, nor are those whose
    /// value is an object or a list: nothing is found by one.
    #[must_use]
    #[inline(never)]
    pub fn new(name: IndexName<T>, path: &str) -> Self {
        Self {
            spec: wit::Index {
                name: name.as_str().to_owned(),
                path: path.to_owned(),
                presence: false,
                unset: false,
                filter: IndexFilter::All,
                order: None,
            },
            view: PhantomData,
        }
    }

    /// Indexes only these values.
    #[must_use]
    pub fn only(mut self, values: &[&str]) -> Self {
        self.spec.filter = IndexFilter::Only(values.iter().map(ToString::to_string).collect());
        self
    }

    /// Indexes all values except these.
    #[must_use]
    pub fn except(mut self, values: &[&str]) -> Self {
        self.spec.filter = IndexFilter::Except(values.iter().map(ToString::to_string).collect());
        self
    }

    /// Keeps the objects of one value in the order of the text at a path, then
    /// of name and namespace, for [`Cache::in_order`](crate::Cache::in_order). Times of the Kubernetes API
    /// sort as text; objects without the field come first. An order costs about 100 bytes
    /// of memory for each object in the index: combine it with a filter.
    #[must_use]
    pub fn order_by(mut self, path: &str) -> Self {
        self.spec.order = Some(path.to_owned());
        self
    }

    /// Indexes the objects that have any value, under `true`.
    #[must_use]
    pub fn presence(mut self) -> Self {
        self.spec.presence = true;
        self
    }

    /// Also indexes the objects without a value, or with an empty one, under
    /// the empty string.
    #[must_use]
    pub fn unset(mut self) -> Self {
        self.spec.unset = true;
        self
    }
}

/// A change in a watch enqueues an item: an object appears or disappears, or a declared
/// field changes.
///
/// ```
/// # use davit_guest::{Identity, QueueName, Trigger, WatchName};
/// const NODES: WatchName<Identity> = WatchName::new("nodes");
/// const CHANGED: QueueName = QueueName::new("changed-nodes");
///
/// // The key of an item is the node's name.
/// let trigger = Trigger::own_key(NODES, CHANGED);
/// ```
impl Trigger {
    /// Enqueues the object's key: `namespace/name`, or `name`.
    #[must_use]
    pub fn own_key<T>(watch: WatchName<T>, queue: QueueName) -> Self {
        Self::new(watch, queue, TriggerKey::OwnKey)
    }

    /// Enqueues the object's uid.
    #[must_use]
    pub fn own_uid<T>(watch: WatchName<T>, queue: QueueName) -> Self {
        Self::new(watch, queue, TriggerKey::OwnUid)
    }

    /// Enqueues each value that an index holds for the object, before or after the change.
    #[must_use]
    pub fn by_index<T>(watch: WatchName<T>, index: IndexName<T>, queue: QueueName) -> Self {
        let index = index.as_str().to_owned();
        Self::new(watch, queue, TriggerKey::Index(index))
    }

    /// Enqueues always this key.
    #[must_use]
    pub fn constant<T>(watch: WatchName<T>, queue: QueueName, key: &str) -> Self {
        Self::new(watch, queue, TriggerKey::Constant(key.to_owned()))
    }

    fn new<T>(watch: WatchName<T>, queue: QueueName, key: TriggerKey) -> Self {
        Self {
            watch: watch.as_str().to_owned(),
            queue: queue.as_str().to_owned(),
            key,
        }
    }
}

/// The objects that a trigger is about: those of which a related object has a value in an
/// index. The keys of the related objects are the values of `index`, an index of the trigger's
/// watch. [`Controller::trigger_conditions`] returns it.
///
/// ```
/// # use davit_guest::{Identity, IndexName, QueueName, TriggerCondition, WatchName};
/// const PODS: WatchName<Identity> = WatchName::new("pods");
/// const BY_NODE: IndexName<Identity> = IndexName::new("node");
/// const NODES: WatchName<Identity> = WatchName::new("nodes");
/// /// Nodes by the effects of their taints.
/// const BY_EFFECT: IndexName<Identity> = IndexName::new("effect");
/// const CHANGED: QueueName = QueueName::new("changed-pods");
///
/// // The pods of tainted nodes, and those about which there is a note `pod/UID`.
/// let condition = TriggerCondition::new((PODS, CHANGED), BY_NODE, (NODES, BY_EFFECT), "NoExecute")
///     .or_noted("pod/");
/// ```
///
/// [`Controller::trigger_conditions`]: crate::Controller::trigger_conditions
impl TriggerCondition {
    /// The condition of the triggers of a watch and a queue, whose key has to be the object's
    /// own key or uid.
    #[must_use]
    pub fn new<T, R>(
        (watch, queue): (WatchName<T>, QueueName),
        index: IndexName<T>,
        (related, related_index): (WatchName<R>, IndexName<R>),
        related_value: &str,
    ) -> Self {
        Self {
            watch: watch.as_str().to_owned(),
            queue: queue.as_str().to_owned(),
            index: index.as_str().to_owned(),
            related: related.as_str().to_owned(),
            related_index: related_index.as_str().to_owned(),
            related_value: related_value.to_owned(),
            note_prefix: None,
        }
    }

    /// Also the objects about which there is a note, whose key is this prefix and the key
    /// that the trigger enqueues.
    #[must_use]
    pub fn or_noted(mut self, prefix: &str) -> Self {
        self.note_prefix = Some(prefix.to_owned());
        self
    }
}

/// The items of a queue. One call at a time reconciles an item. An item that is enqueued
/// meanwhile is reconciled again afterwards. If an item is pending already, the earlier
/// time applies, and the item keeps its creation time.
impl QueueSpec {
    /// A queue whose items are reconciled one by one. The first back-off is 1
    /// s; it doubles with each further failure, up to 5 min.
    #[must_use]
    #[inline(never)]
    pub fn new(name: QueueName) -> Self {
        Self {
            name: name.as_str().to_owned(),
            workers: 1,
            batch: 1,
            priority: 0,
            retry_initial: 1_000,
            retry_max: 300_000,
            rate: None,
        }
    }

    /// How many items are reconciled at once at most.
    #[must_use]
    #[inline(never)]
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How many items one call reconciles at most. A call gets no more items than there are free
    /// [workers](Self::workers): with one worker, one.
    ///
    /// ```
    /// # use davit_guest::{QueueName, QueueSpec};
    /// const PODS: QueueName = QueueName::new("pods");
    ///
    /// // Calls of up to 64 items, and the plans of 256 items in execution.
    /// let queue = QueueSpec::new(PODS).workers(256).batch(64);
    /// ```
    #[must_use]
    #[inline(never)]
    pub fn batch(mut self, batch: u32) -> Self {
        self.batch = batch;
        self
    }

    /// The host dequeues from the queue with the highest priority first.
    #[must_use]
    #[inline(never)]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The first and the longest back-off of a failed item.
    #[must_use]
    #[inline(never)]
    pub fn retry(mut self, initial: Duration, max: Duration) -> Self {
        self.retry_initial = milliseconds(initial);
        self.retry_max = milliseconds(max);
        self
    }

    /// How fast the host dequeues the items of one group, until the command
    /// [`set_rate`](crate::Command::set_rate) changes the rate of this group.
    /// [`Enqueue::group`](crate::Enqueue::group) puts an item into a group; all others are
    /// in one group without a name.
    ///
    /// ```
    /// # use davit_guest::{QueueName, QueueSpec};
    /// const EVICTIONS: QueueName = QueueName::new("evictions");
    ///
    /// // One item every ten seconds in each zone, if the zone is the group.
    /// let queue = QueueSpec::new(EVICTIONS).workers(4).rate(0.1, 1);
    /// ```
    #[must_use]
    #[inline(never)]
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some(Rate { per_second, burst });
        self
    }
}

/// A duration in the contract's form. A longer duration than the form allows
/// becomes the longest.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{View, resources};

    #[derive(Default, View)]
    struct Pod {
        #[view(path = "spec.nodeName")]
        #[allow(dead_code, reason = "only its path matters")]
        node: String,
    }

    #[test]
    fn an_index_adds_its_path_to_the_fields() {
        let watch = Watch::of(WatchName::<Pod>::new("pods"), resources::PODS)
            .index(Index::new(IndexName::new("node"), "spec.nodeName"))
            .index(Index::new(IndexName::new("taint"), "spec.taints[*].key"));
        assert_eq!(watch.spec.fields, ["spec.nodeName", "spec.taints[*].key"]);
    }
}
