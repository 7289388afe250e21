//! The rules for a manifest.

use std::collections::BTreeSet;

use crate::manifest::sizes;
use crate::manifest::{
    IndexSpec, Manifest, ManifestError, MetricKind, MetricSpec, QueueSpec, Source, Trigger,
    TriggerCondition, TriggerKey, WatchSpec,
};
use crate::path::{FieldPath, Segment};

const LIVE_VERBS: [&str; 5] = ["get", "list", "create", "patch", "delete"];

impl Manifest {
    /// Checks that every name resolves and every number is in range, so that
    /// later code does not have to.
    pub fn validate(&self) -> Result<(), ManifestError> {
        if self.name.is_empty() {
            return Err(ManifestError::Unnamed { item: "controller" });
        }
        sizes::check(self)?;
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
        }
        for permission in &self.permissions {
            if !LIVE_VERBS.contains(&permission.verb.as_str()) {
                return Err(ManifestError::Unknown {
                    item: "the permission's verb",
                    name: permission.resource.clone(),
                    value: permission.verb.clone(),
                    known: "get, list, create, patch and delete",
                });
            }
        }
        self.metrics.iter().try_for_each(validate_metric)
    }

    fn validate_trigger(&self, trigger: &Trigger) -> Result<(), ManifestError> {
        let referrer = || format!("a trigger of the queue \"{}\"", trigger.queue);
        self.queue_exists(&trigger.queue, || {
            format!("a trigger of the watch \"{}\"", trigger.watch)
        })?;
        let Some(watch) = self.watch(&trigger.watch) else {
            return Err(ManifestError::Undeclared {
                referrer: referrer(),
                item: "watch",
                name: trigger.watch.clone(),
            });
        };
        let has_index = |watch: &WatchSpec, name: &String| {
            if watch.indexes.iter().any(|index| index.name == *name) {
                return Ok(());
            }
            Err(ManifestError::Undeclared {
                referrer: referrer(),
                item: "index",
                name: name.clone(),
            })
        };
        if let TriggerKey::Index(name) = &trigger.key {
            has_index(watch, name)?;
        }
        let Some(condition) = &trigger.condition else {
            return Ok(());
        };
        if !matches!(trigger.key, TriggerKey::OwnKey | TriggerKey::OwnUid) {
            return Err(ManifestError::ConditionWithoutObject {
                queue: trigger.queue.clone(),
            });
        }
        has_index(watch, &condition.index)?;
        let Some(related) = self.watch(&condition.related) else {
            return Err(ManifestError::Undeclared {
                referrer: referrer(),
                item: "watch",
                name: condition.related.clone(),
            });
        };
        has_index(related, &condition.related_index)
    }

    /// Checks the lengths of its lists and texts alone: before work that grows with them.
    pub fn check_sizes(&self) -> Result<(), ManifestError> {
        sizes::check(self)
    }

    /// Adds a condition to the triggers of a watch and a queue.
    pub fn set_condition(
        &mut self,
        watch: &str,
        queue: &str,
        condition: &TriggerCondition,
    ) -> Result<(), ManifestError> {
        let mut triggers = self.triggers.iter_mut();
        let mut found = triggers
            .by_ref()
            .filter(|trigger| trigger.watch == watch && trigger.queue == queue)
            .peekable();
        if found.peek().is_none() {
            return Err(ManifestError::Undeclared {
                referrer: format!("a condition of the queue \"{queue}\""),
                item: "trigger of the watch",
                name: watch.to_owned(),
            });
        }
        for trigger in found {
            if trigger.condition.is_some() {
                return Err(ManifestError::Duplicate {
                    item: "condition",
                    name: format!("{watch}, {queue}"),
                });
            }
            trigger.condition = Some(condition.clone());
        }
        Ok(())
    }

    fn queue_exists(&self, name: &str, referrer: impl Fn() -> String) -> Result<(), ManifestError> {
        if self.queues.iter().any(|queue| queue.name == name) {
            return Ok(());
        }
        Err(ManifestError::Undeclared {
            referrer: referrer(),
            item: "queue",
            name: name.to_owned(),
        })
    }
}

fn validate_watch(watch: &WatchSpec) -> Result<(), ManifestError> {
    unique("index", watch.indexes.iter().map(|index| &index.name))?;
    for index in &watch.indexes {
        validate_index(watch, index)?;
    }
    if matches!(watch.source, Source::EveryDeletable(_)) {
        validate_every(watch)?;
    }
    Ok(())
}

/// The definitions of custom resources are among every resource: the host concludes from them
/// which others exist, so none of them may be left out.
fn validate_every(watch: &WatchSpec) -> Result<(), ManifestError> {
    if let Some(field) = watch.fields.iter().find(|field| !field.is_metadata()) {
        return Err(ManifestError::NotMetadata {
            watch: watch.name.clone(),
            path: field.to_string(),
        });
    }
    for (what, value) in [
        ("the namespace", &watch.namespace),
        ("the label selector", &watch.label_selector),
        ("the field selector", &watch.field_selector),
    ] {
        if !value.is_empty() {
            let must = "empty in a watch of every resource";
            return Err(out_of_range(what, &watch.name, value, must));
        }
    }
    Ok(())
}

fn validate_index(watch: &WatchSpec, index: &IndexSpec) -> Result<(), ManifestError> {
    let is_kept = |path: &FieldPath| {
        path.is_identity() || watch.fields.iter().any(|field| field.covers(path))
    };
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
            "more than 0, and the maximum at least the initial pause",
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

fn out_of_range(item: &'static str, name: &str, value: &str, must: &'static str) -> ManifestError {
    ManifestError::OutOfRange {
        item,
        name: name.to_owned(),
        value: value.to_owned(),
        must,
    }
}

fn unique<'a>(
    item: &'static str,
    names: impl Iterator<Item = &'a String>,
) -> Result<(), ManifestError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if name.is_empty() {
            return Err(ManifestError::Unnamed { item });
        }
        if !seen.insert(name) {
            return Err(ManifestError::Duplicate {
                item,
                name: name.clone(),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {

    use super::*;
    use crate::object::ApiResource;

    fn ordered_by(order: &str, fields: &[&str], source: Source) -> Result<(), String> {
        let path = |path: &str| path.parse().unwrap();
        let watch = WatchSpec {
            fields: fields.iter().map(|field| path(field)).collect(),
            indexes: vec![IndexSpec {
                order: Some(path(order)),
                ..IndexSpec::new("by-name", path("metadata.name"))
            }],
            ..WatchSpec::new("pods", source)
        };
        validate_watch(&watch).map_err(|error| error.to_string())
    }

    #[test]
    fn an_order_is_one_declared_field_of_one_resource() {
        let pods = || Source::One(ApiResource::new("", "v1", "pods"));
        let age = "metadata.creationTimestamp";
        assert_eq!(ordered_by(age, &["metadata"], pods()), Ok(()));
        for identity in ["metadata.name", "metadata.namespace", "metadata.uid"] {
            assert_eq!(ordered_by(identity, &[], pods()), Ok(()));
        }
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

    fn every_resource(fields: Vec<FieldPath>) -> WatchSpec {
        WatchSpec {
            fields,
            ..WatchSpec::new("objects", Source::EveryDeletable(vec![]))
        }
    }

    /// Among every resource are Secrets: the host asks for partial metadata.
    #[test]
    fn a_watch_of_every_resource_keeps_metadata_only() {
        let fields = |fields: &[&str]| {
            let watch = every_resource(fields.iter().map(|field| field.parse().unwrap()).collect());
            validate_watch(&watch).map_err(|error| error.to_string())
        };
        assert_eq!(
            fields(&["metadata.ownerReferences", "metadata.finalizers"]),
            Ok(())
        );
        for field in ["data", "spec", "metadataX.name", "stringData.password"] {
            assert_eq!(
                fields(&["metadata", field]).unwrap_err(),
                format!(
                    "the watch \"objects\" of every resource declares {field}: it can keep \
                     metadata only"
                )
            );
        }
    }

    /// It would take a resource for deleted whose definition it does not select.
    #[test]
    fn a_watch_of_every_resource_leaves_none_of_their_objects_out() {
        let with = |change: fn(&mut WatchSpec)| {
            let mut watch = every_resource(vec![]);
            change(&mut watch);
            let every = validate_watch(&watch).map_err(|error| error.to_string());
            watch.source = Source::One(ApiResource::new("", "v1", "pods"));
            assert_eq!(
                validate_watch(&watch).map_err(|error| error.to_string()),
                Ok(())
            );
            every
        };
        assert_eq!(with(|_| {}), Ok(()));
        for (refused, what) in [
            (
                with(|watch| watch.namespace = "shop".into()),
                "the namespace of \"objects\" is shop",
            ),
            (
                with(|watch| watch.label_selector = "team=x".into()),
                "the label selector of \"objects\" is team=x",
            ),
            (
                with(|watch| watch.field_selector = "metadata.name=x".into()),
                "the field selector of \"objects\" is metadata.name=x",
            ),
        ] {
            let expected = format!("{what}: it must be empty in a watch of every resource");
            assert_eq!(refused, Err(expected));
        }
    }

    #[test]
    fn a_metric_that_the_host_counts_has_no_labels() {
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

    fn empty() -> Manifest {
        Manifest {
            name: "test".into(),
            version: "1".into(),
            ..Manifest::default()
        }
    }

    fn of_node() -> TriggerCondition {
        TriggerCondition {
            index: "node".into(),
            related: "nodes".into(),
            related_index: "node".into(),
            related_value: "x".into(),
            note_prefix: None,
        }
    }

    #[test]
    fn a_condition_is_about_one_object_and_what_is_declared() {
        let refused = |change: &dyn Fn(&mut Trigger)| {
            let node = IndexSpec::new("node", "spec.nodeName".parse().unwrap());
            let watch = |name: &str| WatchSpec {
                fields: vec!["spec".parse().unwrap()],
                indexes: vec![node.clone()],
                ..WatchSpec::new(name, Source::One(ApiResource::new("", "v1", name)))
            };
            let mut trigger = Trigger {
                watch: "pods".into(),
                queue: "work".into(),
                key: TriggerKey::OwnUid,
                condition: Some(of_node()),
            };
            change(&mut trigger);
            let manifest = Manifest {
                watches: vec![watch("pods"), watch("nodes")],
                triggers: vec![trigger],
                queues: vec![QueueSpec::new("work")],
                ..empty()
            };
            manifest.validate().err().map(|error| error.to_string())
        };
        let condition = |change: &dyn Fn(&mut TriggerCondition)| {
            refused(&|trigger| trigger.condition.iter_mut().for_each(change))
        };
        assert_eq!(refused(&|_| {}), None);
        let trigger = Trigger::new("pods", "other", TriggerKey::OwnUid);
        let mut nothing = Manifest {
            triggers: vec![trigger],
            ..empty()
        };
        assert_eq!(nothing.set_condition("pods", "other", &of_node()), Ok(()));
        let twice = nothing.set_condition("pods", "other", &of_node());
        assert_eq!(
            twice.unwrap_err().to_string(),
            "there are two conditions called \"pods, other\""
        );
        let unknown = nothing.set_condition("pods", "work", &of_node());
        assert_eq!(
            unknown.unwrap_err().to_string(),
            "a condition of the queue \"work\" names the trigger of the watch \"pods\", which is \
             not declared"
        );
        assert_eq!(
            refused(&|it| it.key = TriggerKey::Index("node".into())).unwrap(),
            "a trigger of the queue \"work\" has a condition: its key must be the object's own \
             key or uid"
        );
        let undeclared = |item: &str| {
            Some(format!(
                "a trigger of the queue \"work\" names the {item} \"other\", which is not declared"
            ))
        };
        assert_eq!(
            condition(&|it| it.index = "other".into()),
            undeclared("index")
        );
        assert_eq!(
            condition(&|it| it.related = "other".into()),
            undeclared("watch")
        );
        assert_eq!(
            condition(&|it| it.related_index = "other".into()),
            undeclared("index")
        );
    }
}
