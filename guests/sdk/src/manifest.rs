//! Constructors for manifests.

use std::marker::PhantomData;
use std::time::Duration;

use serde::de::DeserializeOwned;

use crate::{
    ApiResource, Index, IndexFilter, Manifest, Metric, Permission, QueueSpec, Rate, Source, Tick,
    Trigger, TriggerKey, Watch, fields_of,
};

/// The name of a watch, with the view of its objects: the same constant
/// declares the watch and reads it.
#[derive(Debug)]
pub struct WatchName<T> {
    name: &'static str,
    view: PhantomData<fn() -> T>,
}

impl<T> Clone for WatchName<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for WatchName<T> {}

impl<T> WatchName<T> {
    /// Names a watch.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let view = PhantomData;
        Self { name, view }
    }

    /// The name.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.name
    }
}

impl Manifest {
    /// A controller that needs nothing yet. Fill in the lists.
    #[must_use]
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
}

impl Watch {
    /// Watches one resource in all namespaces, with the fields that the view
    /// reads.
    #[must_use]
    pub fn of<T: DeserializeOwned>(name: WatchName<T>, resource: ApiResource) -> Self {
        Self::from_source(name, Source::One(resource))
    }

    /// Watches the metadata of every resource that can be listed, watched and
    /// deleted, except these.
    #[must_use]
    pub fn every_deletable<T: DeserializeOwned>(
        name: WatchName<T>,
        except: Vec<ApiResource>,
    ) -> Self {
        Self::from_source(name, Source::EveryDeletable(except))
    }

    fn from_source<T: DeserializeOwned>(name: WatchName<T>, source: Source) -> Self {
        Self {
            name: name.as_str().to_owned(),
            source,
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields: fields_of::<T>(),
            indexes: Vec::new(),
            optional: false,
        }
    }

    /// Watches fields of one resource in all namespaces that follow from the
    /// configuration, such as `spec.nodeName`.
    #[must_use]
    pub fn of_fields(name: &str, resource: ApiResource, fields: Vec<String>) -> Self {
        Self {
            name: name.to_owned(),
            source: Source::One(resource),
            namespace: String::new(),
            label_selector: String::new(),
            field_selector: String::new(),
            fields,
            indexes: Vec::new(),
            optional: false,
        }
    }

    /// Only the objects of this namespace.
    #[must_use]
    pub fn namespace(mut self, namespace: &str) -> Self {
        namespace.clone_into(&mut self.namespace);
        self
    }

    /// Only the objects that these selectors match; empty for all.
    #[must_use]
    pub fn select(mut self, labels: &str, fields: &str) -> Self {
        labels.clone_into(&mut self.label_selector);
        fields.clone_into(&mut self.field_selector);
        self
    }

    /// Adds an index. Its paths are added to the fields if the view does not
    /// read them.
    #[must_use]
    pub fn index(mut self, index: Index) -> Self {
        for path in std::iter::once(&index.path).chain(&index.order) {
            if !self.fields.iter().any(|field| covers(field, path)) {
                self.fields.push(path.clone());
            }
        }
        self.indexes.push(index);
        self
    }

    /// Lets the controller run while the resource is not served.
    #[must_use]
    pub fn optional(mut self) -> Self {
        self.optional = true;
        self
    }
}

/// Whether everything at `path` is also at `field`.
fn covers(field: &str, path: &str) -> bool {
    path.strip_prefix(field)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
}

impl Index {
    /// An index over the values at a path. Objects without a value are not in
    /// it.
    #[must_use]
    pub fn new(name: &str, path: &str) -> Self {
        Self {
            name: name.to_owned(),
            path: path.to_owned(),
            presence: false,
            unset: false,
            filter: IndexFilter::All,
            order: None,
        }
    }

    /// Indexes only these values.
    #[must_use]
    pub fn only(mut self, values: &[&str]) -> Self {
        self.filter = IndexFilter::Only(values.iter().map(ToString::to_string).collect());
        self
    }

    /// Indexes all values except these.
    #[must_use]
    pub fn except(mut self, values: &[&str]) -> Self {
        self.filter = IndexFilter::Except(values.iter().map(ToString::to_string).collect());
        self
    }

    /// Keeps the objects of one value in the order of the text at a path, then
    /// of name and namespace, for [`Cache::in_order`](crate::Cache::in_order).
    #[must_use]
    pub fn order_by(mut self, path: &str) -> Self {
        self.order = Some(path.to_owned());
        self
    }

    /// Indexes the objects that have any value, under `true`.
    #[must_use]
    pub fn presence(mut self) -> Self {
        self.presence = true;
        self
    }

    /// Also indexes the objects without a value, or with an empty one, under
    /// the empty string.
    #[must_use]
    pub fn unset(mut self) -> Self {
        self.unset = true;
        self
    }
}

impl Trigger {
    /// A change in a watch enqueues these keys.
    #[must_use]
    pub fn new<T>(watch: WatchName<T>, queue: &str, key: TriggerKey) -> Self {
        Self {
            watch: watch.as_str().to_owned(),
            queue: queue.to_owned(),
            key,
        }
    }
}

impl QueueSpec {
    /// A queue whose items are reconciled one by one. The first back-off is 1
    /// s; it doubles with each further failure, up to 5 min.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
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
    pub fn workers(mut self, workers: u32) -> Self {
        self.workers = workers;
        self
    }

    /// How many items one call reconciles at most.
    #[must_use]
    pub fn batch(mut self, batch: u32) -> Self {
        self.batch = batch;
        self
    }

    /// The host dequeues from the queue with the highest priority first.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// The first and the longest back-off of a failed item.
    #[must_use]
    pub fn retry(mut self, initial: Duration, max: Duration) -> Self {
        self.retry_initial = milliseconds(initial);
        self.retry_max = milliseconds(max);
        self
    }

    /// How fast the host dequeues the items of one group, until a command
    /// changes the rate.
    #[must_use]
    pub fn rate(mut self, per_second: f64, burst: u32) -> Self {
        self.rate = Some(Rate { per_second, burst });
        self
    }
}

impl Tick {
    /// An item that the host enqueues at the start, and again a period after it
    /// was last done.
    #[must_use]
    pub fn new(queue: &str, key: &str, period: Duration) -> Self {
        Self {
            queue: queue.to_owned(),
            key: key.to_owned(),
            period: milliseconds(period),
        }
    }
}

impl Permission {
    /// A verb on a resource of a group (empty for core): `pods/status`.
    #[must_use]
    pub fn new(verb: &str, group: &str, resource: &str) -> Self {
        Self {
            verb: verb.to_owned(),
            group: group.to_owned(),
            resource: resource.to_owned(),
        }
    }
}

impl Metric {
    /// A number that only increases.
    #[must_use]
    pub fn counter(name: &str, help: &str, labels: &[&str]) -> Self {
        Self::new("counter", name, help, labels, &[])
    }

    /// A number that increases and decreases.
    #[must_use]
    pub fn gauge(name: &str, help: &str, labels: &[&str]) -> Self {
        Self::new("gauge", name, help, labels, &[])
    }

    /// A counter that the host increments itself: each time that discovery
    /// fails, or that a resource which the controller watches is not listed a
    /// whole discovery period after its stream started.
    #[must_use]
    pub fn sync_errors(name: &str, help: &str) -> Self {
        Self::new("sync-errors", name, help, &[], &[])
    }

    /// Observations, counted by their size up to each of the bounds.
    #[must_use]
    pub fn histogram(name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Self {
        Self::new("histogram", name, help, labels, buckets)
    }

    fn new(kind: &str, name: &str, help: &str, labels: &[&str], buckets: &[f64]) -> Self {
        Self {
            name: name.to_owned(),
            kind: kind.to_owned(),
            help: help.to_owned(),
            labels: labels.iter().map(|&label| label.to_owned()).collect(),
            buckets: buckets.to_vec(),
        }
    }
}

/// A duration in the contract's form. A longer duration than the form allows
/// becomes the longest.
pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize)]
    struct View {
        #[allow(dead_code, reason = "only its name matters")]
        spec: Spec,
    }

    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Spec {
        #[allow(dead_code, reason = "only its name matters")]
        node_name: String,
    }

    #[test]
    fn an_index_adds_its_path_to_the_fields() {
        let name = WatchName::<View>::new("pods");
        let watch = Watch::of(name, ApiResource::new("", "v1", "pods"))
            .index(Index::new("node", "spec.nodeName"))
            .index(Index::new("taint", "spec.taints[*].key"));
        assert_eq!(watch.fields, ["spec.nodeName", "spec.taints[*].key"]);
    }

    #[test]
    fn a_field_covers_the_paths_below_it_only() {
        assert!(covers("status", "status.phase"));
        assert!(covers("spec.taints", "spec.taints[*].key"));
        assert!(covers("spec", "spec"));
        assert!(!covers("spec.node", "spec.nodeName"));
        assert!(!covers("status.phase", "status"));
    }
}
