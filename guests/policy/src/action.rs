//! What a rule does with an object.

use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{
    ApiResource, ConfigError, DeleteOptions, Object, Patch, Permission, Plan, Reason,
};

use crate::cel::path::Path;
use crate::cel::{Expression, Scope};
use crate::completed::has;
use crate::config::{
    ActionsConfig, DeleteConfig, EventConfig, EvictConfig, TaintConfig, UntaintConfig,
};
use crate::evaluate::Evaluator;
use crate::mistake::{at, error};
use crate::names;
use crate::pointer::{self, Operation};
use crate::template::Template;
use crate::written::{self, WriteCheck};

/// What a rule does: changes first, then the end, then the event.
#[derive(Clone, Debug)]
pub(crate) struct Actions {
    /// Labels, annotations and the operator's own merge patch, as one merge patch.
    merge: Option<Template>,
    taint: Option<TaintConfig>,
    untaint: Option<UntaintConfig>,
    operations: Vec<Operation>,
    event: Option<Event>,
    end: Option<End>,
}

#[derive(Clone, Debug)]
struct Event {
    config: EventConfig,
    message: Template,
}

/// What a rule changes in an object.
#[derive(Debug)]
pub(crate) struct Change {
    /// Null if nothing.
    merge: Value,
    operations: Option<Vec<Value>>,
}

/// How an object ends.
#[derive(Clone, Debug)]
enum End {
    Delete(DeleteConfig),
    Evict(EvictConfig),
}

/// The reporting component of the events.
const COMPONENT: &str = "davit-policy";

/// Where an object has its version.
const VERSION: [&str; 2] = ["metadata", "resourceVersion"];
const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
const PROPAGATIONS: [&str; 4] = ["", "Background", "Foreground", "Orphan"];

impl Actions {
    pub(crate) fn compile(
        path: &str,
        config: &ActionsConfig,
        written: WriteCheck<'_>,
        scope: &Scope<'_>,
    ) -> Result<Self, ConfigError> {
        let resource = written.resource;
        let operations = &config.json_patch;
        let actions = Self {
            merge: merge_patch(path, config, written, scope)?,
            taint: taint(path, config, resource)?,
            untaint: untaint(path, config, resource)?,
            operations: pointer::compile(&format!("{path}.jsonPatch"), operations, written, scope)?,
            event: event(path, config, scope)?,
            end: end(path, config, resource)?,
        };
        if actions.changes() && actions.end.is_some() {
            let message = "a rule either changes an object or ends it: write two rules, the first \
                           for the change";
            return Err(error(path, message));
        }
        let has_other = actions.merge.is_some() || actions.has_taints();
        if has_other && !actions.operations.is_empty() {
            let message = "beside label, annotate, taint, untaint or mergePatch it would be a \
                           second patch, of a version that the rule has not judged: write all \
                           changes as jsonPatch, or two rules";
            return Err(error(format!("{path}.jsonPatch"), message));
        }
        if !actions.changes() && actions.event.is_none() && actions.end.is_none() {
            let known =
                "delete, evict, label, annotate, taint, untaint, mergePatch, jsonPatch or event";
            let message = format!("say what is done: {known}; without options, write delete: {{}}");
            return Err(error(path, message));
        }
        Ok(actions)
    }

    /// Whether it changes objects, beside ending them.
    pub(crate) fn changes(&self) -> bool {
        self.merge.is_some() || self.has_taints() || !self.operations.is_empty()
    }

    fn has_taints(&self) -> bool {
        self.taint.is_some() || self.untaint.is_some()
    }

    /// Whether nothing happens to the object: it only gets an event.
    pub(crate) fn is_only_event(&self) -> bool {
        !self.changes() && self.end.is_none()
    }

    /// Whether it deletes or evicts objects.
    pub(crate) fn ends(&self) -> bool {
        self.end.is_some()
    }

    /// After how long a refused eviction becomes a deletion, if ever.
    pub(crate) fn eviction_deadline(&self) -> Option<Duration> {
        match &self.end {
            Some(End::Evict(evict)) => evict.then_delete_after,
            _ => None,
        }
    }

    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        let operations = self.operations.iter().flat_map(Operation::expressions);
        let merge = self.merge.iter().flat_map(Template::expressions);
        let event = self.event.iter().flat_map(|it| it.message.expressions());
        merge.chain(operations).chain(event)
    }

    /// The fields that it changes: it has to know whether they are as they should be.
    pub(crate) fn fields(&self) -> Vec<String> {
        let mut fields = Vec::new();
        if let Some(merge) = &self.merge {
            leaves(merge, &Path::default(), &mut fields);
        }
        if self.taint.is_some() || self.untaint.is_some() {
            fields.push("spec.taints".to_owned());
        }
        fields.extend(self.operations.iter().filter_map(Operation::field));
        fields
    }

    /// What it needs to be allowed.
    pub(crate) fn permissions(&self, resource: &ApiResource) -> Vec<Permission> {
        let group = resource.group.as_str();
        let plural = resource.plural.as_str();
        let mut permissions = Vec::new();
        if self.changes() {
            permissions.push(permission("patch", group, plural));
        }
        if self.event.is_some() {
            permissions.push(permission("create", "", "events"));
        }
        match &self.end {
            Some(End::Delete(_)) => permissions.push(permission("delete", group, plural)),
            Some(End::Evict(evict)) => {
                permissions.push(permission("create", "", "pods/eviction"));
                if evict.then_delete_after.is_some() {
                    permissions.push(permission("delete", "", "pods"));
                }
            }
            None => {}
        }
        permissions
    }

    /// What it would change in an object.
    pub(crate) fn change(
        &self,
        evaluator: &Evaluator<'_>,
        object: &Object<Value>,
    ) -> Result<Change, String> {
        let mut merge = match &self.merge {
            Some(merge) => merge.render(evaluator, &Path::default())?,
            None => Value::Null,
        };
        let is_due = |template| differs(Some(&object.view), &merge, Some(template), None);
        if !self.merge.as_ref().is_some_and(is_due) {
            merge = Value::Null;
        }
        self.change_taints(&mut merge, object);
        let operations = pointer::changes(&self.operations, evaluator, &object.view)?;
        Ok(Change { merge, operations })
    }

    /// The plan for an object; none if it is as it should be already. A pod whose eviction was
    /// refused for too long is deleted.
    pub(crate) fn plan(
        &self,
        evaluator: &Evaluator<'_>,
        object: &Object<Value>,
        reason: Reason,
        message: String,
        is_overdue: bool,
    ) -> Result<Option<Plan>, String> {
        let mut plan = Plan::new(object.reference.clone(), reason, message);
        let Change {
            mut merge,
            operations,
        } = self.change(evaluator, object)?;
        // What somebody wrote meanwhile is not overwritten.
        if !merge.is_null() {
            insert(
                &mut merge,
                &VERSION,
                object.resource_version.as_str().into(),
            );
            plan = plan.patch(Patch::merge(&merge));
        }
        if let Some(mut operations) = operations {
            operations.insert(0, pointer::test(&VERSION, &object.resource_version));
            plan = plan.patch(Patch::json(&Value::List(operations)));
        }
        if plan.steps.is_empty() && self.changes() {
            return Ok(None);
        }
        plan = match &self.end {
            None => plan,
            Some(End::Delete(delete)) => plan.delete(options(
                object,
                delete.grace_period_seconds,
                &delete.propagation_policy,
            )),
            Some(End::Evict(evict)) => {
                let options = options(object, evict.grace_period_seconds, "");
                if is_overdue {
                    plan.delete(options)
                } else {
                    plan.evict(options)
                }
            }
        };
        // A step that fails ends the plan: nothing is announced that did not happen.
        if let Some(event) = &self.event {
            let text = event.message.message(evaluator);
            let reason = &event.config.reason;
            plan = plan.event(match event.config.event_type.as_str() {
                "Warning" => davit_guest::Event::warning(reason, text, COMPONENT),
                _ => davit_guest::Event::normal(reason, text, COMPONENT),
            });
        }
        Ok(Some(plan))
    }
}

/// The version that the rule has judged is a precondition of the end: what was annotated to be
/// kept meanwhile is kept.
fn options(
    object: &Object<Value>,
    grace_period_seconds: Option<i64>,
    propagation_policy: &str,
) -> DeleteOptions {
    let options = DeleteOptions {
        grace_period_seconds,
        propagation_policy: propagation_policy.to_owned(),
        ..DeleteOptions::new()
    };
    options.only_version(&object.resource_version)
}

fn merge_patch(
    path: &str,
    config: &ActionsConfig,
    written: WriteCheck<'_>,
    scope: &Scope<'_>,
) -> Result<Option<Template>, ConfigError> {
    let mut patch = config.merge_patch.clone();
    if !matches!(patch, Value::Null | Value::Map(_)) {
        return Err(error(format!("{path}.mergePatch"), "it is a map of fields"));
    }
    let has_entries = !config.label.is_empty() || !config.annotate.is_empty();
    if !has_entries && matches!(&patch, Value::Map(fields) if fields.is_empty()) {
        let message = "it changes nothing: name the fields and their values";
        return Err(error(format!("{path}.mergePatch"), message));
    }
    written
        .value(&Path::default(), &patch)
        .map_err(|message| error(format!("{path}.mergePatch"), message))?;
    check_entries(path, config)?;
    for (name, entries) in [("labels", &config.label), ("annotations", &config.annotate)] {
        for (key, value) in entries {
            let value = value.as_deref().map_or(Value::Null, Value::from);
            insert(&mut patch, &["metadata", name, key], value);
        }
    }
    if patch.is_null() {
        return Ok(None);
    }
    let template = at(path, Template::compile(&patch, scope))?;
    let template = template.with_texts_at(&["metadata", "labels"]);
    let template = template.with_texts_at(&["metadata", "annotations"]);
    written
        .template(&Path::default(), &template)
        .map_err(|message| error(format!("{path}.mergePatch"), message))?;
    Ok(Some(template))
}

/// Checks the labels and the annotations.
fn check_entries(path: &str, config: &ActionsConfig) -> Result<(), ConfigError> {
    for (key, value) in &config.label {
        names::key(key)
            .and_then(|()| written::fixed(value.as_deref().unwrap_or_default(), names::value))
            .map_err(|message| error(format!("{path}.label"), message))?;
    }
    for key in config.annotate.keys() {
        names::annotation_key(key).map_err(|message| error(format!("{path}.annotate"), message))?;
    }
    Ok(())
}

/// Sets a value at a path of keys; maps appear where there are none.
fn insert(at: &mut Value, path: &[&str], value: Value) {
    let [key, rest @ ..] = path else {
        *at = value;
        return;
    };
    if !matches!(at, Value::Map(_)) {
        *at = Value::Map(Vec::new());
    }
    let Value::Map(entries) = at else { return };
    let position = entries.iter().position(|(name, _)| name == key);
    let position = position.unwrap_or_else(|| {
        entries.push(((*key).to_owned(), Value::Null));
        entries.len() - 1
    });
    if let Some((_, below)) = entries.get_mut(position) {
        insert(below, rest, value);
    }
}

fn taint(
    path: &str,
    config: &ActionsConfig,
    resource: &ApiResource,
) -> Result<Option<TaintConfig>, ConfigError> {
    let Some(taint) = &config.taint else {
        return Ok(None);
    };
    let path = format!("{path}.taint");
    check_taint(&path, &taint.key, resource)?;
    names::value(&taint.value).map_err(|message| error(format!("{path}.value"), message))?;
    check_effect(&path, &taint.effect)?;
    Ok(Some(taint.clone()))
}

fn untaint(
    path: &str,
    config: &ActionsConfig,
    resource: &ApiResource,
) -> Result<Option<UntaintConfig>, ConfigError> {
    let Some(untaint) = &config.untaint else {
        return Ok(None);
    };
    let path = format!("{path}.untaint");
    check_taint(&path, &untaint.key, resource)?;
    if !untaint.effect.is_empty() {
        check_effect(&path, &untaint.effect)?;
    }
    if config.taint.as_ref().is_some_and(|taint| {
        taint.key == untaint.key && (untaint.effect.is_empty() || taint.effect == untaint.effect)
    }) {
        return Err(error(path, "it takes away what taint sets"));
    }
    Ok(Some(untaint.clone()))
}

fn check_taint(path: &str, key: &str, resource: &ApiResource) -> Result<(), ConfigError> {
    if !resource.group.is_empty() || resource.plural != "nodes" {
        return Err(error(path, "only nodes have taints"));
    }
    if key.is_empty() {
        return Err(error(format!("{path}.key"), "it must be set"));
    }
    names::key(key).map_err(|message| error(format!("{path}.key"), message))
}

fn check_effect(path: &str, effect: &str) -> Result<(), ConfigError> {
    if EFFECTS.contains(&effect) {
        return Ok(());
    }
    let message = format!("it is one of {}", EFFECTS.join(", "));
    Err(error(format!("{path}.effect"), message))
}

fn event(
    path: &str,
    config: &ActionsConfig,
    scope: &Scope<'_>,
) -> Result<Option<Event>, ConfigError> {
    let Some(event) = &config.event else {
        return Ok(None);
    };
    let path = format!("{path}.event");
    if !matches!(event.event_type.as_str(), "" | "Normal" | "Warning") {
        return Err(error(format!("{path}.type"), "it is Normal or Warning"));
    }
    if event.reason.is_empty() {
        return Err(error(format!("{path}.reason"), "it must be set"));
    }
    let message = at(
        &format!("{path}.message"),
        Template::text(&event.message, scope),
    )?;
    Ok(Some(Event {
        config: event.clone(),
        message,
    }))
}

fn end(
    path: &str,
    config: &ActionsConfig,
    resource: &ApiResource,
) -> Result<Option<End>, ConfigError> {
    match (&config.delete, &config.evict) {
        (Some(_), Some(_)) => Err(error(path, "write either delete or evict")),
        (None, None) => Ok(None),
        (Some(delete), None) => {
            if !PROPAGATIONS.contains(&delete.propagation_policy.as_str()) {
                let message = "it is Background, Foreground or Orphan";
                return Err(error(format!("{path}.delete.propagationPolicy"), message));
            }
            check_grace(&format!("{path}.delete"), delete.grace_period_seconds)?;
            Ok(Some(End::Delete(delete.clone())))
        }
        (None, Some(evict)) => {
            if !resource.group.is_empty() || resource.plural != "pods" {
                return Err(error(format!("{path}.evict"), "only pods can be evicted"));
            }
            check_grace(&format!("{path}.evict"), evict.grace_period_seconds)?;
            if evict.then_delete_after == Some(Duration::ZERO) {
                let path = format!("{path}.evict.thenDeleteAfter");
                let message = "with no time at all no budget could refuse: use delete";
                return Err(error(path, message));
            }
            Ok(Some(End::Evict(evict.clone())))
        }
    }
}

fn check_grace(path: &str, seconds: Option<i64>) -> Result<(), ConfigError> {
    match seconds {
        Some(seconds) if seconds < 0 => Err(error(
            format!("{path}.gracePeriodSeconds"),
            "it must not be negative",
        )),
        _ => Ok(()),
    }
}

/// The paths that a merge patch sets.
fn leaves(template: &Template, path: &Path, fields: &mut Vec<String>) {
    match template {
        Template::Map(entries) => {
            for (key, value) in entries {
                leaves(value, &path.key(key), fields);
            }
        }
        _ if !path.is_root() => fields.push(path.declared()),
        _ => {}
    }
}

/// Whether a merge patch would change a value. A value with the time in it is set once: it is
/// another one at each moment. `root` is the field of the object in which both are.
fn differs(
    current: Option<&Value>,
    patch: &Value,
    template: Option<&Template>,
    root: Option<&str>,
) -> bool {
    let is_set = current.is_some_and(|current| !current.is_null());
    match (patch, template) {
        (Value::Map(entries), template) => {
            let below = |name: &str| match template {
                Some(Template::Map(templates)) => {
                    let mut templates = templates.iter();
                    let found = templates.find(|(key, _)| key == name);
                    found.map(|(_, template)| template)
                }
                template => template,
            };
            let mut entries = entries.iter();
            entries.any(|(key, value)| {
                let current = current.and_then(|it| it.get(key));
                differs(current, value, below(key), root.or(Some(key)))
            })
        }
        (_, Some(template)) if is_set && template.reads_now() => false,
        (Value::Null, _) => is_set,
        (value, _) => !current.is_some_and(|current| has(current, value, root)),
    }
}

impl Actions {
    /// Adds the node's taints to a patch, with those that it changes.
    fn change_taints(&self, patch: &mut Value, node: &Object<Value>) {
        let before: Vec<Value> = match node.view.at(["spec", "taints"]) {
            Some(Value::List(taints)) => taints.clone(),
            _ => Vec::new(),
        };
        let mut taints = before.clone();
        if let Some(untaint) = &self.untaint {
            taints.retain(|it| !untaint.matches(it));
        }
        if let Some(taint) = &self.taint {
            add_taint(&mut taints, taint);
        }
        if taints == before {
            return;
        }
        insert(patch, &["spec", "taints"], Value::List(taints));
    }
}

impl UntaintConfig {
    /// Whether it takes a taint away.
    fn matches(&self, taint: &Value) -> bool {
        let is_effect = self.effect.is_empty() || taint.text("effect") == self.effect;
        taint.text("key") == self.key && is_effect
    }
}

/// Adds a taint, unless it is there.
fn add_taint(taints: &mut Vec<Value>, taint: &TaintConfig) {
    let text = |text: &str| Value::from(text);
    let same = taints
        .iter()
        .position(|it| it.text("key") == taint.key && it.text("effect") == taint.effect);
    let mut wanted = vec![
        ("key".to_owned(), text(&taint.key)),
        ("effect".to_owned(), text(&taint.effect)),
    ];
    if !taint.value.is_empty() {
        wanted.insert(1, ("value".to_owned(), text(&taint.value)));
    }
    match same.and_then(|at| taints.get_mut(at)) {
        Some(same) if same.text("value") == taint.value => {}
        Some(same) => *same = Value::Map(wanted),
        None => taints.push(Value::Map(wanted)),
    }
}

/// A permission in the form of an RBAC rule.
pub(crate) fn permission(verb: &str, group: &str, resource: &str) -> Permission {
    Permission {
        verb: verb.to_owned(),
        group: group.to_owned(),
        resource: resource.to_owned(),
    }
}
