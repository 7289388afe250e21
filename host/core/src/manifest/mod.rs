//! What a guest declares: the core's form of `manifest` in `wit/`.
//!
//! The engine translates the manifest of a component, the SDK's test harness that of a guest
//! that is compiled natively, both with [`manifest_translation`](crate::manifest_translation).

mod check;
mod error;
mod sizes;
mod translation;

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

pub use error::ManifestError;

use crate::object::ApiResource;
use crate::path::FieldPath;

/// Everything that a controller needs from the host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Manifest {
    /// The controller's name in Kubernetes' style: `podgc`.
    pub name: String,
    /// The guest's own version.
    pub version: String,
    /// One sentence for an operator.
    pub summary: String,
    /// Its watches.
    pub watches: Vec<WatchSpec>,
    /// What enqueues its items.
    pub triggers: Vec<Trigger>,
    /// Its queues.
    pub queues: Vec<QueueSpec>,
    /// Its periodic items.
    pub ticks: Vec<TickSpec>,
    /// The live reads and writes that it may ask for.
    pub permissions: Vec<Permission>,
    /// Its metrics.
    pub metrics: Vec<MetricSpec>,
    /// The JSON Schema of its configuration.
    pub config_schema: String,
    /// What its live reads ask for, by resource, as far as it says so.
    pub live_fields: Vec<LiveFields>,
}

/// The resources of a watch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One resource.
    One(ApiResource),
    /// Every resource that can be listed, watched and deleted, except these in
    /// any version.
    EveryDeletable(Vec<ApiResource>),
}

/// A watch as a guest declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    /// The guest's name for the watch.
    pub name: String,
    /// Its resources.
    pub source: Source,
    /// Only this namespace; empty for all.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The declared fields.
    pub fields: Vec<FieldPath>,
    /// Its secondary indexes.
    pub indexes: Vec<IndexSpec>,
    /// Whether the controller runs while the resource is not served.
    pub optional: bool,
}

/// A secondary index over the scalars at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// The guest's name for the index.
    pub name: String,
    /// The path of the values; it may go through lists.
    pub path: FieldPath,
    /// Index only whether an object has a value, under `true`.
    pub presence: bool,
    /// Also index objects without a value, or with an empty one, under the
    /// empty string.
    pub unset: bool,
    /// Which values are indexed.
    pub filter: IndexFilter,
    /// The field whose text orders the objects of one value: a path to a single
    /// scalar; none for no order.
    pub order: Option<FieldPath>,
}

/// The values that an index holds. An object whose value is filtered out is not
/// in the index; it does not count as an object without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IndexFilter {
    /// All.
    #[default]
    All,
    /// Only these.
    Only(BTreeSet<String>),
    /// All except these.
    Except(BTreeSet<String>),
}

impl IndexFilter {
    /// Whether a value is indexed.
    #[must_use]
    pub fn admits(&self, value: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(values) => values.contains(value),
            Self::Except(values) => !values.contains(value),
        }
    }
}

impl IndexSpec {
    /// An index over all values at a path, without an order.
    #[must_use]
    pub fn new(name: &str, path: FieldPath) -> Self {
        Self {
            name: name.to_owned(),
            path,
            presence: false,
            unset: false,
            filter: IndexFilter::All,
            order: None,
        }
    }

    /// The paths that the index reads.
    pub fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        std::iter::once(&self.path).chain(&self.order)
    }
}

/// A change in a watch that enqueues items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The watch.
    pub watch: String,
    /// The queue.
    pub queue: String,
    /// The keys that it enqueues.
    pub key: TriggerKey,
    /// Which objects it is about; none: all.
    pub condition: Option<TriggerCondition>,
}

/// A trigger is about an object if a related object has a value in an index, or if the guest
/// has a note about the object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TriggerCondition {
    /// An index of the trigger's watch: its values are the keys of the related objects.
    pub index: String,
    /// The watch of the related objects.
    pub related: String,
    /// An index of that watch.
    pub related_index: String,
    /// The value that a related object has to have there.
    pub related_value: String,
    /// What the key of a note about the object starts with, before the key that the trigger
    /// enqueues.
    pub note_prefix: Option<String>,
}

/// The keys that a trigger enqueues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerKey {
    /// The object's own key.
    OwnKey,
    /// The object's uid.
    OwnUid,
    /// Each value, before or after the change, in this index.
    Index(String),
    /// Always this key.
    Constant(String),
}

/// A queue as a guest declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// Its name, also as a metric label.
    pub name: String,
    /// How many items are reconciled at once at most.
    pub workers: u32,
    /// How many items one call reconciles at most.
    pub batch: u32,
    /// The host dequeues from the queue with the highest priority first.
    pub priority: i32,
    /// The first back-off after a failure; it doubles.
    pub retry_initial: Duration,
    /// The longest back-off.
    pub retry_max: Duration,
    /// The rate of each group, until a command sets it.
    pub rate: Option<Rate>,
}

/// How fast items are dequeued.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Items a second; 0 stops the group.
    pub per_second: f64,
    /// How many at once after a pause.
    pub burst: u32,
}

/// An item that is enqueued at the start, and again a period after it was last
/// done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickSpec {
    /// Its queue.
    pub queue: String,
    /// Its key.
    pub key: String,
    /// The pause between two runs.
    pub period: Duration,
}

/// A live read or a write that a guest may ask for, in the form of an RBAC
/// rule.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// `get`, `list`, `create`, `patch`, `delete`.
    pub verb: String,
    /// Empty for core; `*` for all.
    pub group: String,
    /// The plural, with its subresource if it has one; `*` for all.
    pub resource: String,
}

/// The fields of the live reads of a resource.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFields {
    /// The group of the permission; `*` for all.
    pub group: String,
    /// The plural; `*` for all.
    pub resource: String,
    /// The fields; none if the reads ask for the identity alone.
    pub fields: Vec<FieldPath>,
}

impl Trigger {
    /// A trigger that is about all objects of the watch.
    #[must_use]
    pub fn new(watch: impl Into<String>, queue: impl Into<String>, key: TriggerKey) -> Self {
        Self {
            watch: watch.into(),
            queue: queue.into(),
            key,
            condition: None,
        }
    }
}

impl QueueSpec {
    /// A queue as the SDK declares one: its items are reconciled one by one.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            workers: 1,
            batch: 1,
            priority: 0,
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_mins(5),
            rate: None,
        }
    }
}

impl Permission {
    /// A verb on a resource of a group.
    #[must_use]
    pub fn new(
        verb: impl Into<String>,
        group: impl Into<String>,
        resource: impl Into<String>,
    ) -> Self {
        Self {
            verb: verb.into(),
            group: group.into(),
            resource: resource.into(),
        }
    }

    /// What a guest asks for whose plans record events.
    #[must_use]
    pub fn of_events() -> Self {
        Self {
            verb: "create".to_owned(),
            group: String::new(),
            resource: "events".to_owned(),
        }
    }

    /// Whether this rule covers a verb on a resource (`pods`, `pods/status`).
    #[must_use]
    pub fn covers(&self, verb: &str, group: &str, resource: &str) -> bool {
        let fits = |rule: &str, value: &str| rule == "*" || rule == value;
        fits(&self.verb, verb) && fits(&self.group, group) && fits(&self.resource, resource)
    }
}

impl fmt::Display for Permission {
    /// `delete pods`, `patch pods/status`, `create batch/jobs`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ", self.verb)?;
        if !self.group.is_empty() {
            write!(f, "{}/", self.group)?;
        }
        f.write_str(&self.resource)
    }
}

/// The kind of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only increases.
    Counter,
    /// Increases and decreases.
    Gauge,
    /// Counts observations by size.
    Histogram,
    /// Only increases, and the host increments it: failed discoveries, and
    /// discovery periods in which a watched resource was never listed.
    SyncErrors,
}

/// A metric that a guest, or the host for it, records.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSpec {
    /// Its name at the metrics endpoint.
    pub name: String,
    /// Its kind.
    pub kind: MetricKind,
    /// Its help text.
    pub help: String,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// A histogram's upper bounds.
    pub buckets: Vec<f64>,
}

impl WatchSpec {
    /// A watch of all objects, which keeps no fields of them.
    #[must_use]
    pub fn new(name: impl Into<String>, source: Source) -> Self {
        Self {
            name: name.into(),
            source,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: Vec::new(),
            indexes: Vec::new(),
            optional: false,
        }
    }

    /// The group and the plural in a rule of RBAC; `*` stands for all.
    #[must_use]
    pub fn rule_resource(&self) -> (&str, &str) {
        match &self.source {
            Source::One(resource) => (&resource.group, &resource.plural),
            Source::EveryDeletable(_) => ("*", "*"),
        }
    }
}

impl Manifest {
    /// Whether the guest reads live or writes: the host does that as the account of its
    /// controller. Events are the host's own.
    #[must_use]
    pub fn acts_as_account(&self) -> bool {
        let events = Permission::of_events();
        self.permissions.iter().any(|one| *one != events)
    }

    /// Where permissions on a resource are needed, beside those of its watches: in the namespaces in
    /// which the guest watches it, as it writes to what it watches. Empty text stands for all
    /// namespaces, as of a resource that it does not watch.
    #[must_use]
    pub fn namespaces_of(&self, group: &str, resource: &str) -> BTreeSet<&str> {
        let watches = self.watches.iter();
        let watches = watches.filter(|watch| watch.rule_resource() == (group, resource));
        let namespaces: BTreeSet<&str> = watches.map(|watch| watch.namespace.as_str()).collect();
        if namespaces.is_empty() || namespaces.contains("") {
            return BTreeSet::from([""]);
        }
        namespaces
    }

    /// The watch with that name.
    #[must_use]
    pub fn watch(&self, name: &str) -> Option<&WatchSpec> {
        self.watches.iter().find(|watch| watch.name == name)
    }

    /// Whether the guest declared this permission.
    #[must_use]
    pub fn permits(&self, verb: &str, group: &str, resource: &str) -> bool {
        self.permissions
            .iter()
            .any(|permission| permission.covers(verb, group, resource))
    }
}

impl Rate {
    /// Whether a bucket can apply it.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.per_second.is_finite() && self.per_second >= 0.0 && self.burst > 0
    }
}
