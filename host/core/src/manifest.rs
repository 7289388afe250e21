//! What a guest says it needs: the core's form of `manifest` in `wit/`.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use crate::object::ApiResource;
use crate::path::{FieldPath, PathError, Segment};

/// Everything that a controller needs from the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Manifest {
    /// The controller's name in Kubernetes' style: `podgc`.
    pub name: String,
    /// The guest's own version.
    pub version: String,
    /// One sentence for an operator.
    pub summary: String,
    /// The watches it reads.
    pub watches: Vec<WatchSpec>,
    /// What adds items to its queues.
    pub triggers: Vec<Trigger>,
    /// Its queues.
    pub queues: Vec<QueueSpec>,
    /// Its periodic items.
    pub ticks: Vec<TickSpec>,
    /// The live reads and writes that it may ask for.
    pub permissions: Vec<Permission>,
    /// What it counts.
    pub metrics: Vec<MetricSpec>,
    /// The JSON Schema of its configuration.
    pub config_schema: String,
}

/// Where a watch takes its objects from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// One resource.
    One(ApiResource),
    /// Every resource that can be listed, watched and deleted, except these,
    /// whatever their version.
    EveryDeletable(Vec<ApiResource>),
}

/// A watch as a guest declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchSpec {
    /// How the guest calls it.
    pub name: String,
    /// Where its objects come from.
    pub source: Source,
    /// Only this namespace; empty for all.
    pub namespace: String,
    /// Kubernetes' label selector; empty for all.
    pub label_selector: String,
    /// Kubernetes' field selector; empty for all.
    pub field_selector: String,
    /// The fields to keep.
    pub fields: Vec<FieldPath>,
    /// Its secondary indexes.
    pub indexes: Vec<IndexSpec>,
    /// Whether the controller runs while the resource is not served.
    pub optional: bool,
}

/// A secondary index over the scalars at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IndexSpec {
    /// How the guest calls it.
    pub name: String,
    /// Where the values are; it may go through lists.
    pub path: FieldPath,
    /// Index only whether there is a value, under `true`.
    pub presence: bool,
    /// Index objects without a value, or with an empty one, under the empty
    /// string.
    pub unset: bool,
    /// Which values are indexed.
    pub filter: IndexFilter,
    /// The field by whose text the objects of one value are ordered, if they
    /// are: a path to a single scalar.
    pub order: Option<FieldPath>,
}

/// Which values an index holds. The others are as if they were not there, but
/// an object that has one is not without a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum IndexFilter {
    /// All.
    #[default]
    All,
    /// Only these.
    Only(BTreeSet<String>),
    /// All but these.
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

    /// The paths that it reads.
    pub fn paths(&self) -> impl Iterator<Item = &FieldPath> {
        std::iter::once(&self.path).chain(&self.order)
    }
}

/// A change in a watch that adds items to a queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trigger {
    /// The watch.
    pub watch: String,
    /// The queue.
    pub queue: String,
    /// Which key is added.
    pub key: TriggerKey,
}

/// The key that a trigger adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TriggerKey {
    /// The object's own key.
    OwnKey,
    /// The object's uid.
    OwnUid,
    /// Each value, before or after the change, in this index.
    Index(String),
    /// Always this one.
    Constant(String),
}

/// A queue as a guest declares it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueSpec {
    /// Its name, also as a metric label.
    pub name: String,
    /// How many items are worked on at once, at most.
    pub workers: u32,
    /// How many items one call takes, at most.
    pub batch: u32,
    /// Items of a queue with a higher one go first.
    pub priority: i32,
    /// The first pause before a failed item comes again; it doubles.
    pub retry_initial: Duration,
    /// The longest such pause.
    pub retry_max: Duration,
    /// The rate of each group, until it is set.
    pub rate: Option<Rate>,
}

/// How fast items are let through.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rate {
    /// Items a second; 0 lets nothing through.
    pub per_second: f64,
    /// How many at once after a pause.
    pub burst: u32,
}

/// An item that comes at the start, and a period after it was last done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TickSpec {
    /// The queue it comes through.
    pub queue: String,
    /// Its key.
    pub key: String,
    /// The pause between two of its runs.
    pub period: Duration,
}

/// A live read or write that a guest may ask for, as a rule of RBAC.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// `get`, `list`, `create`, `patch`, `delete`.
    pub verb: String,
    /// Empty for core; `*` for all.
    pub group: String,
    /// The plural, with its subresource if it has one; `*` for all.
    pub resource: String,
}

impl Permission {
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

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts observations by size.
    Histogram,
    /// Only rises, and is the host's to count: discoveries that failed, and
    /// periods of discovery in which a watched resource was never listed.
    SyncErrors,
}

/// A metric that a guest counts, or has the host count.
#[derive(Clone, Debug, PartialEq)]
pub struct MetricSpec {
    /// Its name at the metrics endpoint.
    pub name: String,
    /// What it is.
    pub kind: MetricKind,
    /// Its help text.
    pub help: String,
    /// The names of its labels.
    pub labels: Vec<String>,
    /// A histogram's upper bounds.
    pub buckets: Vec<f64>,
}

/// What is wrong with a manifest. It is the guest author's to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ManifestError {
    /// A name is empty.
    #[error("a {what} has an empty name")]
    Unnamed {
        /// `watch`, `queue`, …
        what: &'static str,
    },
    /// Two things of one sort have the same name.
    #[error("there are two {what}s called \"{name}\"")]
    Duplicate {
        /// `watch`, `queue`, …
        what: &'static str,
        /// The name they share.
        name: String,
    },
    /// Something refers to what is not declared.
    #[error("{whose} names the {what} \"{name}\", which is not declared")]
    Undeclared {
        /// Who refers to it: `the tick "gc"`.
        whose: String,
        /// `watch`, `queue`, …
        what: &'static str,
        /// The missing name.
        name: String,
    },
    /// A field path cannot be read.
    #[error("watch \"{watch}\": {source}")]
    Path {
        /// The watch that declares it.
        watch: String,
        /// Why it cannot be read.
        source: PathError,
    },
    /// An index lies outside the declared fields.
    #[error(
        "index \"{index}\" of the watch \"{watch}\" is over {path}, which is not among the watch's fields"
    )]
    IndexOutsideFields {
        /// The watch.
        watch: String,
        /// The index.
        index: String,
        /// Its path.
        path: String,
    },
    /// A watch of every resource may keep metadata only.
    #[error("the watch \"{watch}\" of every resource declares {path}: it can keep metadata only")]
    NotMetadata {
        /// The watch.
        watch: String,
        /// The field outside metadata.
        path: String,
    },
    /// A number that must be positive is not.
    #[error("{what} of \"{name}\" is {value}: it must be {must}")]
    OutOfRange {
        /// `workers`, `period`, …
        what: &'static str,
        /// The queue, tick or metric.
        name: String,
        /// What it is.
        value: String,
        /// What it must be.
        must: &'static str,
    },
    /// A string is not one of those that this version of the host knows.
    #[error("{what} of \"{name}\" is \"{value}\": this host knows {known}")]
    Unknown {
        /// `kind`, `verb`, …
        what: &'static str,
        /// Where it stands.
        name: String,
        /// What it is.
        value: String,
        /// What it could be.
        known: &'static str,
    },
}

const LIVE_VERBS: [&str; 5] = ["get", "list", "create", "patch", "delete"];

impl Manifest {
    /// The watch of that name.
    #[must_use]
    pub fn watch(&self, name: &str) -> Option<&WatchSpec> {
        self.watches.iter().find(|watch| watch.name == name)
    }

    /// Whether the guest declared that it may ask for this.
    #[must_use]
    pub fn permits(&self, verb: &str, group: &str, resource: &str) -> bool {
        self.permissions
            .iter()
            .any(|permission| permission.covers(verb, group, resource))
    }

    /// Checks that every name resolves and every number makes sense, so that
    /// nothing behind this point has to.
    pub fn validate(&self) -> Result<(), ManifestError> {
        if self.name.is_empty() {
            return Err(ManifestError::Unnamed { what: "controller" });
        }
        unique("watch", self.watches.iter().map(|watch| &watch.name))?;
        unique("queue", self.queues.iter().map(|queue| &queue.name))?;
        unique("metric", self.metrics.iter().map(|metric| &metric.name))?;
        for watch in &self.watches {
            validate_watch(watch)?;
        }
        for queue in &self.queues {
            validate_queue(queue)?;
        }
        for trigger in &self.triggers {
            self.validate_trigger(trigger)?;
        }
        for tick in &self.ticks {
            self.queue_exists(&tick.queue, || format!("the tick \"{}\"", tick.key))?;
            if tick.period.is_zero() {
                return Err(out_of_range("period", &tick.key, "0", "more than 0 ms"));
            }
        }
        for permission in &self.permissions {
            if !LIVE_VERBS.contains(&permission.verb.as_str()) {
                return Err(ManifestError::Unknown {
                    what: "the permission's verb",
                    name: permission.resource.clone(),
                    value: permission.verb.clone(),
                    known: "get, list, create, patch and delete",
                });
            }
        }
        self.metrics.iter().try_for_each(validate_metric)
    }

    fn validate_trigger(&self, trigger: &Trigger) -> Result<(), ManifestError> {
        let whose = || format!("a trigger of the queue \"{}\"", trigger.queue);
        self.queue_exists(&trigger.queue, || {
            format!("a trigger of the watch \"{}\"", trigger.watch)
        })?;
        let Some(watch) = self.watch(&trigger.watch) else {
            return Err(ManifestError::Undeclared {
                whose: whose(),
                what: "watch",
                name: trigger.watch.clone(),
            });
        };
        if let TriggerKey::Index(name) = &trigger.key
            && !watch.indexes.iter().any(|index| index.name == *name)
        {
            return Err(ManifestError::Undeclared {
                whose: whose(),
                what: "index",
                name: name.clone(),
            });
        }
        Ok(())
    }

    fn queue_exists(&self, name: &str, whose: impl Fn() -> String) -> Result<(), ManifestError> {
        if self.queues.iter().any(|queue| queue.name == name) {
            return Ok(());
        }
        Err(ManifestError::Undeclared {
            whose: whose(),
            what: "queue",
            name: name.to_owned(),
        })
    }
}

fn validate_watch(watch: &WatchSpec) -> Result<(), ManifestError> {
    unique("index", watch.indexes.iter().map(|index| &index.name))?;
    for index in &watch.indexes {
        validate_index(watch, index)?;
    }
    if matches!(watch.source, Source::EveryDeletable(_))
        && let Some(field) = watch.fields.iter().find(|field| !field.is_metadata())
    {
        return Err(ManifestError::NotMetadata {
            watch: watch.name.clone(),
            path: field.to_string(),
        });
    }
    Ok(())
}

fn validate_index(watch: &WatchSpec, index: &IndexSpec) -> Result<(), ManifestError> {
    let is_kept = |path: &FieldPath| watch.fields.iter().any(|field| field.covers(path));
    if let Some(path) = index.paths().find(|path| !is_kept(path)) {
        return Err(ManifestError::IndexOutsideFields {
            watch: watch.name.clone(),
            index: index.name.clone(),
            path: path.to_string(),
        });
    }
    let Some(order) = &index.order else {
        return Ok(());
    };
    let must = if order.segments().contains(&Segment::Each) {
        "a path that goes through no list"
    } else if matches!(watch.source, Source::EveryDeletable(_)) {
        "none in a watch of every resource"
    } else {
        return Ok(());
    };
    let order = order.to_string();
    Err(out_of_range("the order", &index.name, &order, must))
}

fn validate_queue(queue: &QueueSpec) -> Result<(), ManifestError> {
    let name = &queue.name;
    if queue.workers == 0 {
        return Err(out_of_range("workers", name, "0", "1 or more"));
    }
    if queue.batch == 0 {
        return Err(out_of_range("batch", name, "0", "1 or more"));
    }
    if queue.retry_initial.is_zero() || queue.retry_max < queue.retry_initial {
        return Err(out_of_range(
            "the retry pause",
            name,
            &format!("{:?} to {:?}", queue.retry_initial, queue.retry_max),
            "more than 0, and its longest not under its first",
        ));
    }
    match queue.rate {
        Some(rate) if !rate.is_valid() => Err(out_of_range(
            "rate",
            name,
            &rate.per_second.to_string(),
            "a finite number of 0 or more, with a burst of 1 or more",
        )),
        _ => Ok(()),
    }
}

fn validate_metric(metric: &MetricSpec) -> Result<(), ManifestError> {
    let rising = metric.buckets.windows(2).all(|pair| match pair {
        [low, high] => low < high,
        _ => true,
    });
    if !rising || metric.buckets.iter().any(|bound| !bound.is_finite()) {
        let bounds = format!("{:?}", metric.buckets);
        return Err(out_of_range(
            "buckets",
            &metric.name,
            &bounds,
            "finite and rising",
        ));
    }
    if metric.kind == MetricKind::SyncErrors && !metric.labels.is_empty() {
        let labels = metric.labels.join(", ");
        return Err(out_of_range("labels", &metric.name, &labels, "none"));
    }
    Ok(())
}

impl Rate {
    /// Whether it can be put into practice.
    #[must_use]
    pub fn is_valid(self) -> bool {
        self.per_second.is_finite() && self.per_second >= 0.0 && self.burst > 0
    }
}

fn out_of_range(what: &'static str, name: &str, value: &str, must: &'static str) -> ManifestError {
    ManifestError::OutOfRange {
        what,
        name: name.to_owned(),
        value: value.to_owned(),
        must,
    }
}

fn unique<'a>(
    what: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(ManifestError::Unnamed { what });
        }
        if !seen.insert(name) {
            return Err(ManifestError::Duplicate {
                what,
                name: name.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ordered_by(order: &str, fields: &[&str], source: Source) -> Result<(), String> {
        let path = |path: &str| path.parse().unwrap();
        let watch = WatchSpec {
            name: "pods".into(),
            source,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: fields.iter().map(|field| path(field)).collect(),
            indexes: vec![IndexSpec {
                order: Some(path(order)),
                ..IndexSpec::new("by-name", path("metadata.name"))
            }],
            optional: false,
        };
        validate_watch(&watch).map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_is_one_kept_field_of_one_resource() {
        let pods = || Source::One(ApiResource::new("", "v1", "pods"));
        let age = "metadata.creationTimestamp";
        assert_eq!(ordered_by(age, &["metadata"], pods()), Ok(()));
        assert_eq!(
            ordered_by(age, &["metadata.name"], pods()).unwrap_err(),
            "index \"by-name\" of the watch \"pods\" is over metadata.creationTimestamp, which is \
             not among the watch's fields"
        );
        let list = "metadata.finalizers[*]";
        assert_eq!(
            ordered_by(list, &["metadata"], pods()).unwrap_err(),
            "the order of \"by-name\" is metadata.finalizers[*]: it must be a path that goes \
             through no list"
        );
        let every = Source::EveryDeletable(vec![]);
        assert_eq!(
            ordered_by(age, &["metadata"], every).unwrap_err(),
            "the order of \"by-name\" is metadata.creationTimestamp: it must be none in a \
             watch of every resource"
        );
    }

    #[test]
    fn what_the_host_counts_has_no_labels() {
        let metric = |labels: &[&str]| MetricSpec {
            name: "sync_errors_total".into(),
            kind: MetricKind::SyncErrors,
            help: String::new(),
            labels: labels.iter().map(ToString::to_string).collect(),
            buckets: vec![],
        };
        assert_eq!(validate_metric(&metric(&[])), Ok(()));
        let refused = validate_metric(&metric(&["resource"])).unwrap_err();
        assert_eq!(
            refused.to_string(),
            "labels of \"sync_errors_total\" is resource: it must be none"
        );
    }
}
