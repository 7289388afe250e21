//! Proof by the API server: the object, its namespace and what is related to it, read again before
//! a rule acts.

use std::collections::BTreeMap;

use davit_guest::dynamic::Value;
use davit_guest::{ListRequest, Object, ObjectRef, Retry};

use super::Call;
use super::relations::is_beside;
use crate::cel::schema;
use crate::evaluate::Evaluator;
use crate::judge::Outcome;
use crate::related::{Link, Related, Unrelated, Values};
use crate::rule::{NamespaceSelector, Rule};

/// An object that a rule selects, as the API server has it.
pub(crate) struct Proven<'r> {
    object: Object<Value>,
    related: Vec<(&'r str, Option<Value>)>,
    unlinked: BTreeMap<&'r str, String>,
}

impl Proven<'_> {
    /// Evaluates with what was read.
    pub(crate) fn with<R>(
        &self,
        call: &Call<'_>,
        then: impl FnOnce(&Evaluator<'_>, &Object<Value>) -> R,
    ) -> R {
        then(&self.evaluator(call), &self.object)
    }

    fn evaluator<'a>(&'a self, call: &'a Call<'_>) -> Evaluator<'a> {
        let mut evaluator = Evaluator::new(call.now(), &self.object.view);
        for (name, value) in &self.related {
            evaluator.objects.insert(name, value.as_ref());
        }
        evaluator.unlinked.clone_from(&self.unlinked);
        evaluator
    }
}

/// Reads an object and what is related to it. None if the rule does not select it any more; an
/// error if something cannot be read.
pub(crate) fn prove<'r>(
    call: &Call<'_>,
    rule: &'r Rule,
    object: &Object<Value>,
) -> Result<Option<Proven<'r>>, String> {
    let fields: Vec<String> = rule.fields().into_iter().collect();
    let found = get(call, &object.reference, &fields)?;
    judge(call, rule, object, found)
}

/// Whether the API server has these objects as the cache has them, and the rule selects them all.
pub(crate) fn prove_all(call: &Call<'_>, rule: &Rule, objects: &[Object<Value>]) -> bool {
    let fields: Vec<String> = rule.fields().into_iter().collect();
    let targets: Vec<ObjectRef> = objects.iter().map(|it| it.reference.clone()).collect();
    let found = call.cx.live_get_fields(&targets, &fields);
    let is_complete = found.len() == objects.len();
    let mut pairs = objects.iter().zip(found);
    is_complete
        && pairs.all(|(object, found)| {
            let proven = judge(call, rule, object, found.ok());
            matches!(proven, Ok(Some(_)))
        })
}

/// Judges an object as the API server has it.
fn judge<'r>(
    call: &Call<'_>,
    rule: &'r Rule,
    object: &Object<Value>,
    found: Option<Object<Value>>,
) -> Result<Option<Proven<'r>>, String> {
    let cached = &object.resource_version;
    // Another version may have other labels, and be in another group: the cache has to see it
    // first.
    let Some(object) = found.filter(|it| it.resource_version == *cached) else {
        return Ok(None);
    };
    if let Some(selector) = &rule.matches.namespace_selector {
        let target = selector.namespace.target(call.cx, &object.view);
        let namespace = match target.map_err(in_words)? {
            Some(target) => get(call, &target, &[NamespaceSelector::FIELD.to_owned()])?,
            None => None,
        };
        if !selector.selects(namespace.as_ref().map(|it| &it.view)) {
            return Ok(None);
        }
    }
    let mut related = Vec::new();
    for it in &rule.related {
        related.push((it.name.as_str(), read(call, rule, it, &object)?));
    }
    let unlinked = rule.unlinked(&object.view);
    let proven = Proven {
        object,
        related,
        unlinked,
    };
    let evaluator = proven.evaluator(call);
    let own = evaluator.own_clauses(rule).ok();
    let is_selected = own.is_some_and(|own| evaluator.rule(rule, own).outcome == Outcome::Selected);
    Ok(is_selected.then_some(proven))
}

fn get(
    call: &Call<'_>,
    target: &ObjectRef,
    fields: &[String],
) -> Result<Option<Object<Value>>, String> {
    let found = call.cx.live_fields(target, fields);
    found.map_err(Retry::into_reason)
}

fn read(
    call: &Call<'_>,
    rule: &Rule,
    related: &Related,
    object: &Object<Value>,
) -> Result<Option<Value>, String> {
    let fields: Vec<String> = rule.fields_of(related).collect();
    match &related.link {
        Link::Name(_) | Link::Owner => {
            match related.target(call.cx, &object.view).map_err(in_words)? {
                None => Ok(None),
                Some(target) => Ok(get(call, &target, &fields)?.map(|it| it.view)),
            }
        }
        Link::Field { by, .. } => {
            let value = related.value_of(call.cx, &object.view).map_err(in_words)?;
            let Some(value) = value else {
                return Ok(Some(Value::List(Vec::new())));
            };
            let request = ListRequest {
                resource: related.resource.clone(),
                namespace: namespace_of(call, related, object),
                label_selector: String::new(),
                field_selector: String::new(),
                fields: fields.into_iter().chain([by.clone()]).collect(),
            };
            let objects = call.cx.live_list_fields::<Value>(&request);
            let objects = objects.map_err(|failure| failure.to_string())?;
            let namespace = &object.reference.namespace;
            let mut linked = Vec::new();
            for object in objects.into_iter().filter(|it| is_beside(namespace, it)) {
                let found = Values::at(&object.view, by);
                if let Some(mistake) = found.mistake(by, &related.resource.plural) {
                    return Err(mistake);
                }
                if found.texts.contains(&value) {
                    linked.push(object.view);
                }
            }
            Ok(Some(Value::List(linked)))
        }
    }
}

/// The namespace in which related objects are listed; none lists those of all namespaces, and those
/// that are in none. Whether a custom kind has namespaces, the objects in the cache show.
fn namespace_of(call: &Call<'_>, related: &Related, object: &Object<Value>) -> String {
    let first = || {
        let watch = call.policy.sources.watch_of(related)?;
        let (objects, _) = call.cx.watch(watch.name).scan_page(0, 1);
        Some(!objects.first()?.reference.namespace.is_empty())
    };
    match schema::is_namespaced(&related.resource).or_else(first) {
        Some(true) => object.reference.namespace.clone(),
        Some(false) | None => String::new(),
    }
}

fn in_words(unrelated: Unrelated) -> String {
    match unrelated {
        Unrelated::OtherKind => "its owner is of another kind".to_owned(),
        Unrelated::Unknown(message) => message,
    }
}
