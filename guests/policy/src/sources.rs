//! The watches that the rules need, and everything else of the manifest.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{
    ApiResource, Counter, Index, IndexName, LiveFields, Manifest, Permission, QueueName, QueueSpec,
    Trigger, Watch, WatchName, covers,
};

use crate::action::permission;
use crate::cel::OBJECT;
use crate::keep::Keep;
use crate::related::{Link, Related};
use crate::resource;
use crate::rule::{Count, DELETION, NamespaceSelector, Rule};

/// The queue of the groups of which some objects are kept.
pub(crate) const GROUPS: QueueName = QueueName::new("groups");
/// The queue of the objects whose eviction becomes a deletion after a while.
pub(crate) const EVICTIONS: QueueName = QueueName::new("evictions");
/// The queue of the one item that acts for the rules whose own acts change what they count.
pub(crate) const ONE_BY_ONE: QueueName = QueueName::new("one-by-one");
/// The index of the objects that are being deleted.
pub(crate) const TERMINATING: &str = "terminating";
/// The queue of the passes over the objects of rules whose time is no comparison with `now`.
pub(crate) const PASSES: QueueName = QueueName::new("passes");
/// How many expressions failed, by rule.
pub(crate) const FAILURES: Counter<1> = Counter::new(
    "policy_evaluation_failures_total",
    "Expressions that failed, so that their rule did not act, by rule.",
    ["rule"],
);

/// The value under which an index has the objects with any value.
pub(crate) const PRESENT: &str = "true";

/// The first back-off after a failure.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest: an eviction that a budget refuses is retried this often.
const LAST_RETRY: Duration = Duration::from_secs(30);
/// How often an eviction is tried that a budget refuses.
pub(crate) const EVICT_AGAIN: Duration = Duration::from_secs(10);
/// How many objects one page of a pass has.
pub(crate) const PAGE: u32 = 2000;
/// How many objects one call judges. An object takes some microseconds.
const BATCH: u32 = 500;
/// How many groups, evictions or changes of related objects one call decides.
const GROUP_BATCH: u32 = 50;
/// How many items are decided and written at once if that follows from other objects: so many acts
/// may be in flight when one of these changes.
const FRESH: u32 = 8;

/// Objects that rules are about: one watch, and the queue of the same name.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    pub(crate) name: WatchName<Value>,
    pub(crate) queue: QueueName,
    resource: ApiResource,
    namespace: String,
    label_selector: String,
    field_selector: String,
    fields: BTreeSet<String>,
    /// The rules about them, in their order.
    pub(crate) rules: Vec<usize>,
    /// The paths of its indexes.
    indexes: BTreeSet<String>,
    pub(crate) is_periodic: bool,
}

impl Source {
    /// Whether another watch is of the same resource, in whatever version: it may have the same
    /// objects.
    pub(crate) fn is_about_same(&self, other: &Self) -> bool {
        resource::is_same(&self.resource, &other.resource)
    }
}

/// The watch of related objects.
#[derive(Clone, Debug)]
pub(crate) struct RelatedWatch {
    pub(crate) name: WatchName<Value>,
    pub(crate) queue: QueueName,
    pub(crate) related: Related,
    fields: BTreeSet<String>,
    /// The sources whose objects read them.
    pub(crate) sources: BTreeSet<usize>,
}

/// All watches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sources {
    pub(crate) matched: Vec<Source>,
    pub(crate) related: Vec<RelatedWatch>,
    /// The source of each rule.
    pub(crate) of_rule: Vec<usize>,
}

impl Sources {
    pub(crate) fn of(rules: &[Rule]) -> Self {
        let mut sources = Self::default();
        for (index, rule) in rules.iter().enumerate() {
            let source = sources.source_of(rule);
            sources.of_rule.push(source);
            if let Some(it) = sources.matched.get_mut(source) {
                it.rules.push(index);
                it.fields.extend(rule.fields());
                it.is_periodic |= rule.is_periodic();
                let keep = rule.keep.as_ref().and_then(Keep::index_path);
                it.indexes.extend(keep);
                it.indexes
                    .extend(rule.lead.iter().map(|lead| lead.path.clone()));
                it.indexes
                    .extend(rule.related.iter().map(Related::index_path));
            }
            for related in &rule.related {
                let fields = rule.fields_of(related).collect();
                sources.watch_related(related, fields, source);
            }
            if let Some(selector) = &rule.matches.namespace_selector {
                sources.select_namespaces(&selector.namespace, source);
            }
        }
        sources
    }

    fn source_of(&mut self, rule: &Rule) -> usize {
        let matches = &rule.matches;
        let mut namespaces = matches.namespaces.iter();
        let namespace = match (namespaces.next(), namespaces.next()) {
            (Some(namespace), None) => namespace.clone(),
            _ => String::new(),
        };
        let found = self.matched.iter().position(|it| {
            it.resource == rule.resource
                && it.namespace == namespace
                && it.label_selector == matches.label_selector
                && it.field_selector == matches.field_selector
        });
        found.unwrap_or_else(|| {
            let name = resource::name(&rule.resource);
            let same = self
                .matched
                .iter()
                .filter(|it| resource::name(&it.resource) == name);
            let name = match same.count() {
                0 => name,
                count => format!("{name}-{}", count + 1),
            };
            self.matched.push(Source {
                name: WatchName::named(&name),
                queue: QueueName::named(&name),
                resource: rule.resource.clone(),
                namespace,
                label_selector: matches.label_selector.clone(),
                field_selector: matches.field_selector.clone(),
                fields: BTreeSet::new(),
                rules: Vec::new(),
                indexes: BTreeSet::new(),
                is_periodic: false,
            });
            self.matched.len() - 1
        })
    }

    /// The labels of the namespaces decide which objects a rule is about.
    fn select_namespaces(&mut self, namespace: &Related, source: usize) {
        let path = namespace.index_path();
        if let Some(source) = self.matched.get_mut(source) {
            source.fields.insert(path.clone());
            source.indexes.insert(path);
        }
        let labels = BTreeSet::from([NamespaceSelector::FIELD.to_owned()]);
        self.watch_related(namespace, labels, source);
    }

    fn watch_related(&mut self, related: &Related, fields: BTreeSet<String>, source: usize) {
        if let Some(watch) = self.related.iter_mut().find(|it| it.is_of(related)) {
            watch.fields.extend(fields);
            watch.sources.insert(source);
            return;
        }
        let name = format!("related-{}-{}", self.related.len(), related.name);
        self.related.push(RelatedWatch {
            name: WatchName::named(&name),
            queue: QueueName::named(&name),
            related: related.clone(),
            fields,
            sources: BTreeSet::from([source]),
        });
    }

    /// The watch of related objects.
    pub(crate) fn watch_of(&self, related: &Related) -> Option<&RelatedWatch> {
        self.related.iter().find(|it| it.is_of(related))
    }
}

/// The manifest of some rules.
pub(crate) fn manifest(
    rules: &[Rule],
    counts: &[Count],
    sources: &Sources,
    every: Duration,
) -> Manifest {
    let summary = "Acts on objects by rules in CEL: its policy is its configuration.";
    let mut manifest = Manifest {
        permissions: permissions(rules),
        ..Manifest::new("policy", env!("CARGO_PKG_VERSION"), summary)
    }
    .config_schema(include_str!("../config.schema.json"))
    .metric(FAILURES)
    .queue(queue_of_groups(rules))
    .queue(queue_of_evictions(rules))
    .queue(queue(PASSES, 1).retry(every, every));
    if rules.iter().any(|it| it.is_one_by_one) {
        manifest = manifest.queue(queue(ONE_BY_ONE, 1));
    }
    for source in &sources.matched {
        manifest = manifest
            .watch(source.watch())
            .queue(queue_of_objects(rules, source))
            .trigger(Trigger::own_key(source.name, source.queue));
        if source.is_periodic {
            manifest = manifest.tick(PASSES, source.queue.as_str(), every);
        }
    }
    for watch in &sources.related {
        manifest = manifest
            .watch(watch.watch())
            .queue(queue(watch.queue, GROUP_BATCH))
            .trigger(watch.trigger());
    }
    for count in counts {
        manifest = manifest.watch(watch_of_count(count));
    }
    manifest
}

/// The queue of the groups.
fn queue_of_groups(rules: &[Rule]) -> QueueSpec {
    let acting = rules.iter().filter(|it| it.keep.is_some());
    acting_queue(GROUPS, acting, GROUP_BATCH)
}

/// The queue of the evictions that become deletions.
fn queue_of_evictions(rules: &[Rule]) -> QueueSpec {
    let acting = rules.iter().filter(|it| it.has_deadline());
    acting_queue(EVICTIONS, acting, GROUP_BATCH)
}

/// The queue of the objects of a source. Some rules leave their acts to other queues.
fn queue_of_objects(rules: &[Rule], source: &Source) -> QueueSpec {
    let rules = source.rules.iter().filter_map(|it| rules.get(*it));
    let acting = rules.filter(|it| it.keep.is_none() && !it.is_one_by_one && !it.has_deadline());
    acting_queue(source.queue, acting, BATCH)
}

/// A queue whose items these rules act on. What an act follows from must be true when it is
/// written: nothing is written before a call is answered, and many plans may wait for a slow API
/// server.
fn acting_queue<'r>(
    name: QueueName,
    rules: impl Iterator<Item = &'r Rule>,
    most: u32,
) -> QueueSpec {
    let rules: Vec<&Rule> = rules.collect();
    let does = |is_it: fn(&Rule) -> bool| rules.iter().any(|it| is_it(it));
    let reads = does(Rule::reads_live);
    let (workers, batch) = if reads && does(|it| it.actions.changes()) {
        // Calls that read overlap: one would overwrite what another notes of its changes.
        (1, 1)
    } else if reads {
        (FRESH, 1)
    } else if does(Rule::reads_others) {
        (FRESH, FRESH)
    } else {
        (most, most)
    };
    queue(name, batch).workers(workers)
}

/// A queue whose calls decide so many items, and no more at once: a call gets no more items than
/// there are free workers.
fn queue(name: QueueName, batch: u32) -> QueueSpec {
    QueueSpec::new(name)
        .workers(batch)
        .batch(batch)
        .retry(FIRST_RETRY, LAST_RETRY)
}

impl Source {
    fn watch(&self) -> Watch<Value> {
        let fields = reduced(&self.fields);
        let mut watch = Watch::of_fields(self.name, self.resource.clone(), fields)
            .namespace(&self.namespace)
            .select(&self.label_selector, &self.field_selector);
        for path in &self.indexes {
            watch = watch.index(Index::new(IndexName::named(path), path));
        }
        watch
    }
}

impl RelatedWatch {
    /// Whether it is the watch of these, under whatever name.
    fn is_of(&self, related: &Related) -> bool {
        self.related.resource == related.resource && self.related.link == related.link
    }

    fn watch(&self) -> Watch<Value> {
        let fields = reduced(&self.fields);
        let watch = Watch::of_fields(self.name, self.related.resource.clone(), fields);
        let Link::Field { by, .. } = &self.related.link else {
            return watch;
        };
        let watch = watch.index(Index::new(IndexName::named(by), by));
        match self.presence() {
            Some(name) => watch.index(Index::new(name, by).presence()),
            None => watch,
        }
    }

    /// The index of the objects whose field has any value, if nobody knows whether that is a
    /// text.
    pub(crate) fn presence(&self) -> Option<IndexName<Value>> {
        match &self.related.link {
            Link::Field {
                by,
                is_known: false,
                ..
            } => Some(IndexName::named(&format!("any {by}"))),
            _ => None,
        }
    }

    /// What finds the objects that read a related one.
    fn trigger(&self) -> Trigger {
        match &self.related.link {
            Link::Name(_) => Trigger::own_key(self.name, self.queue),
            Link::Owner => Trigger::own_uid(self.name, self.queue),
            Link::Field { by, .. } => {
                Trigger::by_index(self.name, IndexName::named(by), self.queue)
            }
        }
    }
}

fn watch_of_count(count: &Count) -> Watch<Value> {
    let clauses = count.clauses.iter();
    let fields = clauses.filter_map(|it| it.expression.fields.get(OBJECT));
    let mut fields: BTreeSet<String> = fields.flatten().cloned().collect();
    fields.insert(DELETION.to_owned());
    let mut watch = Watch::of_fields(count.watch, count.resource.clone(), reduced(&fields))
        .select(&count.label_selector, "");
    if let Some(lead) = &count.lead {
        watch = watch.index(Index::new(IndexName::named(&lead.path), &lead.path));
    }
    if count.clauses.is_empty() {
        let terminating = Index::new(IndexName::named(TERMINATING), DELETION);
        watch = watch.index(terminating.presence());
    }
    watch
}

/// The paths without those that others contain.
fn reduced(fields: &BTreeSet<String>) -> Vec<String> {
    fields
        .iter()
        .filter(|field| {
            !fields
                .iter()
                .any(|other| other != *field && covers(other, field))
        })
        .cloned()
        .collect()
}

/// What the proofs of rules read of the API server.
pub(crate) fn live_reads(rules: &[Rule]) -> Vec<LiveFields> {
    let mut read: Vec<(&ApiResource, BTreeSet<String>)> = Vec::new();
    let mut add = |resource, fields: BTreeSet<String>| match read
        .iter_mut()
        .find(|(known, _)| *known == resource)
    {
        Some((_, known)) => known.extend(fields),
        None => read.push((resource, fields)),
    };
    for rule in rules.iter().filter(|it| it.reads_live()) {
        add(&rule.resource, rule.fields());
        for related in &rule.related {
            let mut fields: BTreeSet<String> = rule.fields_of(related).collect();
            if let Link::Field { by, .. } = &related.link {
                fields.insert(by.clone());
            }
            add(&related.resource, fields);
        }
        if let Some(selector) = &rule.matches.namespace_selector {
            let labels = BTreeSet::from([NamespaceSelector::FIELD.to_owned()]);
            add(&selector.namespace.resource, labels);
        }
    }
    let read = read.into_iter();
    read.map(|(resource, fields)| LiveFields::new(resource, reduced(&fields)))
        .collect()
}

fn permissions(rules: &[Rule]) -> Vec<Permission> {
    let mut permissions: BTreeMap<(String, String, String), Permission> = BTreeMap::new();
    let mut add = |it: Permission| {
        let key = (it.group.clone(), it.resource.clone(), it.verb.clone());
        permissions.insert(key, it);
    };
    for rule in rules {
        for permission in rule.actions.permissions(&rule.resource) {
            add(permission);
        }
        if rule.reads_live() {
            let own = std::iter::once((&rule.resource, "get"));
            let related = rule.related.iter().map(|it| match it.link {
                Link::Field { .. } => (&it.resource, "list"),
                Link::Name(_) | Link::Owner => (&it.resource, "get"),
            });
            let selector = rule.matches.namespace_selector.iter();
            let namespace = selector.map(|it| (&it.namespace.resource, "get"));
            for (resource, verb) in own.chain(related).chain(namespace) {
                add(permission(verb, &resource.group, &resource.plural));
            }
        }
    }
    permissions.into_values().collect()
}
