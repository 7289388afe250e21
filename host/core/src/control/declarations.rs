//! The Controllers of a cluster, from the updates of their stream: which controllers they
//! declare, and which changes the host has to know.

use std::collections::BTreeMap;

use serde_json::Value;

use super::declaration::Declaration;
use super::requests::Requests;
use crate::api::{API_VERSION, ControllerSpec, ControllerStatus, KIND, SpecError, is_dns_label};
use crate::object::{ObjectRef, ProjectedObject};
use crate::stream::Update;
use crate::watch::Condition;

/// The effect of an update.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclarationChange {
    /// Whether the host has to know the declarations. A status that the host itself
    /// wrote is no news.
    pub is_news: bool,
    /// The statuses of Controllers that cannot be read. They count as none.
    pub foreign_statuses: Vec<ForeignStatus>,
    /// Why the Controllers cannot be watched, and what to do.
    pub failure: Option<String>,
}

/// A status that was not written by Davit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignStatus {
    /// The Controller.
    pub controller: String,
    /// Why the status cannot be read.
    pub error: String,
}

/// The declarations of a cluster.
#[derive(Debug)]
pub struct Declarations {
    /// None until the first list.
    controllers: Option<BTreeMap<String, Declaration>>,
    /// Whether a status that changes is news: with leases, another replica writes it.
    follows_status: bool,
}

impl Declarations {
    /// No declarations yet. `has_leases` says whether there are other replicas.
    #[must_use]
    pub fn new(has_leases: bool) -> Self {
        Self {
            controllers: None,
            follows_status: has_leases,
        }
    }

    /// The declarations by name; none until the first list.
    #[must_use]
    pub fn all(&self) -> Option<Vec<Declaration>> {
        let controllers = self.controllers.as_ref()?;
        Some(controllers.values().cloned().collect())
    }

    /// Handles an update of the stream of Controllers.
    pub fn handle(&mut self, update: Update) -> DeclarationChange {
        let mut change = DeclarationChange::default();
        match update {
            Update::Reset { items, .. } => {
                let listed = items.iter().filter_map(|item| {
                    let declared = declare(item, &mut change.foreign_statuses)?;
                    Some((declared.name.clone(), declared))
                });
                let listed: BTreeMap<_, _> = listed.collect();
                change.is_news = self.is_news(&listed);
                self.controllers = Some(listed);
            }
            Update::Apply(object) => match declare(&object, &mut change.foreign_statuses) {
                Some(declared) => change.is_news = self.insert(declared),
                None => change.is_news = self.remove(&object.name),
            },
            Update::Delete(object) => change.is_news = self.remove(&object.name),
            Update::Status(condition) => change.failure = failure(&condition),
        }
        change
    }

    /// Returns whether that is news.
    fn insert(&mut self, declared: Declaration) -> bool {
        let former = self
            .controllers
            .as_ref()
            .and_then(|all| all.get(&declared.name));
        let is_news = former.is_none_or(|former| !self.is_same(former, &declared));
        // A stream starts with a list.
        if let Some(controllers) = &mut self.controllers {
            controllers.insert(declared.name.clone(), declared);
        }
        is_news
    }

    /// Returns whether it was there.
    fn remove(&mut self, name: &str) -> bool {
        let controllers = self.controllers.as_mut();
        controllers.is_some_and(|all| all.remove(name).is_some())
    }

    /// Whether a complete list is news.
    fn is_news(&self, listed: &BTreeMap<String, Declaration>) -> bool {
        let Some(known) = &self.controllers else {
            return true;
        };
        let mut both = known.values().zip(listed.values());
        known.len() != listed.len() || !both.all(|(former, now)| self.is_same(former, now))
    }

    /// Whether a host that knows one declaration need not know the other.
    fn is_same(&self, one: &Declaration, other: &Declaration) -> bool {
        let Declaration {
            name,
            generation,
            object,
            status,
            spec,
            requests,
        } = one;
        *name == other.name
            && *generation == other.generation
            && *object == other.object
            && *spec == other.spec
            && *requests == other.requests
            && (!self.follows_status || *status == other.status)
    }
}

/// Why the Controllers cannot be watched, and what to do; none if they are.
fn failure(condition: &Condition) -> Option<String> {
    /// How a refusal starts in the text of a condition.
    const REFUSED: [&str; 2] = ["the server answered 401", "the server answered 403"];
    let reason = match condition {
        Condition::Synced => return None,
        Condition::NotServed => {
            "the API server does not serve them: apply deploy/crds/controllers.davit.dev.yaml"
                .to_owned()
        }
        Condition::Interrupted { reason } if REFUSED.iter().any(|no| reason.starts_with(no)) => {
            format!(
                "{reason}: grant Davit's service account the verbs get, list and watch on \
                 controllers.davit.dev"
            )
        }
        Condition::Interrupted { reason } => reason.clone(),
    };
    Some(format!(
        "the Controllers cannot be watched: {reason}; will retry every few seconds"
    ))
}

/// A Controller that is being deleted does not run any more, even if finalizers keep it.
fn is_going(object: &Value) -> bool {
    let at = object.pointer("/metadata/deletionTimestamp");
    at.is_some_and(|at| !at.is_null())
}

/// The controller that an object declares; none if it is being deleted. Another version of Davit or
/// an operator may have written the object.
fn declare(item: &ProjectedObject, foreign: &mut Vec<ForeignStatus>) -> Option<Declaration> {
    // What the projector has written can be read. Null is a spec that is refused.
    let mut object: Value = rmp_serde::from_slice(&item.data).unwrap_or_default();
    if is_going(&object) {
        return None;
    }
    let name = String::from(&*item.name);
    let mut part = |pointer: &str| object.pointer_mut(pointer).map(Value::take);
    let spec = part("/spec").unwrap_or_default();
    let status = part("/status").filter(|status| !status.is_null());
    let annotations = part("/metadata/annotations").unwrap_or_default();
    let annotations = serde_json::from_value(annotations).unwrap_or_default();
    Some(Declaration {
        generation: object
            .pointer("/metadata/generation")
            .and_then(Value::as_i64),
        object: Some(ObjectRef {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            namespace: String::new(),
            name: name.clone(),
            uid: item.uid.to_string(),
        }),
        status: status.and_then(|status| read_status(&name, status, foreign)),
        spec: read_spec(&name, &spec),
        requests: Requests::read(&annotations),
        name,
    })
}

fn read_spec(name: &str, spec: &Value) -> Result<ControllerSpec, SpecError> {
    if !is_dns_label(name) {
        return Err(SpecError {
            field: "metadata.name".to_owned(),
            reason: "it is not a DNS label: 63 characters at most, no dots".to_owned(),
        });
    }
    ControllerSpec::read(spec).map_err(|error| error.below("spec"))
}

fn read_status(
    name: &str,
    status: Value,
    foreign: &mut Vec<ForeignStatus>,
) -> Option<ControllerStatus> {
    match serde_json::from_value(status) {
        Ok(status) => Some(status),
        Err(error) => {
            foreign.push(ForeignStatus {
                controller: name.to_owned(),
                error: error.to_string(),
            });
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::object::Uid;
    use crate::watch::{Interruption, Refusal};

    fn controller(name: &str, threshold: u32) -> Value {
        json!({
            "apiVersion": API_VERSION, "kind": KIND,
            "metadata": {"name": name, "uid": format!("uid-{name}"), "generation": 1},
            "spec": {
                "module": {"builtin": "podgc"},
                "config": {"terminatedPodThreshold": threshold},
            },
        })
    }

    fn with(mut object: Value, pointer: &str, key: &str, value: Value) -> Value {
        object.pointer_mut(pointer).unwrap()[key] = value;
        object
    }

    fn going(object: Value) -> Value {
        with(
            object,
            "/metadata",
            "deletionTimestamp",
            json!("2026-11-20T10:00:00Z"),
        )
    }

    /// The object as a stream has it.
    fn item(object: &Value) -> ProjectedObject {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap();
        ProjectedObject {
            namespace: "".into(),
            name: text("/metadata/name").into(),
            uid: Uid::new(text("/metadata/uid")),
            resource_version: "1".into(),
            data: rmp_serde::to_vec(object).unwrap().into(),
        }
    }

    /// Lists these Controllers. Returns whether they are news.
    fn list(declarations: &mut Declarations, objects: &[Value]) -> bool {
        let reset = Update::Reset {
            items: objects.iter().map(item).collect(),
            resource_version: "1".into(),
        };
        declarations.handle(reset).is_news
    }

    fn apply(declarations: &mut Declarations, object: &Value) -> bool {
        declarations.handle(Update::Apply(item(object))).is_news
    }

    fn names(declarations: &Declarations) -> Vec<String> {
        let all = declarations.all().unwrap();
        all.into_iter().map(|one| one.name).collect()
    }

    fn only(object: Value) -> Declaration {
        let mut declarations = Declarations::new(false);
        list(&mut declarations, &[object]);
        let mut all = declarations.all().unwrap();
        assert_eq!(all.len(), 1);
        all.remove(0)
    }

    #[test]
    fn nothing_is_known_until_the_first_list() {
        let mut declarations = Declarations::new(false);
        assert_eq!(declarations.all(), None);
        apply(&mut declarations, &controller("a", 1));
        assert_eq!(declarations.all(), None);
        assert!(list(&mut declarations, &[]), "an empty list is news too");
        assert_eq!(names(&declarations), [""; 0]);
    }

    #[test]
    fn a_list_replaces_what_was_known_and_is_news_if_it_differs() {
        let mut declarations = Declarations::new(false);
        assert!(list(
            &mut declarations,
            &[controller("b", 1), controller("a", 1)]
        ));
        assert_eq!(names(&declarations), ["a", "b"]);
        assert!(!list(
            &mut declarations,
            &[controller("a", 1), controller("b", 1)]
        ));
        for other in [controller("a", 2), controller("c", 1)] {
            assert!(list(&mut declarations, std::slice::from_ref(&other)));
            assert!(!list(&mut declarations, &[other]));
        }
        assert_eq!(names(&declarations), ["c"]);
    }

    #[test]
    fn an_applied_controller_is_news_if_anything_but_its_status_changed() {
        let mut declarations = Declarations::new(false);
        list(&mut declarations, &[]);
        let object = controller("a", 1);
        assert!(apply(&mut declarations, &object));
        assert!(!apply(&mut declarations, &object));
        let annotated = with(
            object.clone(),
            "/metadata",
            "annotations",
            json!({"davit.dev/promote": "abc@2"}),
        );
        assert!(apply(&mut declarations, &annotated));
        let all = declarations.all().unwrap();
        assert_eq!(all[0].requests.promote.as_deref(), Some("abc@2"));
        let recreated = with(object.clone(), "/metadata", "uid", json!("other"));
        assert!(apply(&mut declarations, &recreated));
        assert!(apply(&mut declarations, &controller("a", 2)));
        let labelled = with(
            controller("a", 2),
            "/metadata",
            "labels",
            json!({"team": "x"}),
        );
        assert!(!apply(&mut declarations, &labelled));
    }

    #[test]
    fn a_status_is_news_only_if_other_replicas_write_it() {
        for has_leases in [false, true] {
            let mut declarations = Declarations::new(has_leases);
            list(&mut declarations, &[controller("a", 1)]);
            let changed = with(controller("a", 1), "", "status", json!({"summary": "fine"}));
            assert_eq!(apply(&mut declarations, &changed), has_leases);
            let known = declarations.all().unwrap().remove(0).status;
            assert_eq!(known.map(|status| status.summary).as_deref(), Some("fine"));
            assert!(!list(&mut declarations, &[changed]));
            assert_eq!(
                list(&mut declarations, &[controller("a", 1)]),
                has_leases,
                "a status that is gone"
            );
        }
    }

    #[test]
    fn a_controller_that_is_being_deleted_declares_nothing() {
        let mut declarations = Declarations::new(false);
        list(
            &mut declarations,
            &[controller("a", 1), going(controller("b", 1))],
        );
        assert_eq!(names(&declarations), ["a"]);
        assert!(apply(&mut declarations, &going(controller("a", 1))));
        assert_eq!(names(&declarations), [""; 0]);
        assert!(!apply(&mut declarations, &going(controller("a", 1))));
        assert!(apply(&mut declarations, &controller("a", 1)));
        let deleted = Update::Delete(item(&controller("a", 1)));
        assert!(declarations.handle(deleted.clone()).is_news);
        assert!(!declarations.handle(deleted).is_news);
    }

    #[test]
    fn a_declaration_has_the_object_of_its_events_and_the_generation() {
        let declared = only(controller("a", 3));
        let object = ObjectRef {
            api_version: API_VERSION.to_owned(),
            kind: "Controller".to_owned(),
            namespace: String::new(),
            name: "a".to_owned(),
            uid: "uid-a".to_owned(),
        };
        assert_eq!(declared.object, Some(object));
        assert_eq!(declared.generation, Some(1));
        assert_eq!(declared.status, None);
        let spec = declared.spec.unwrap();
        assert_eq!(spec.config["terminatedPodThreshold"], 3);
    }

    #[test]
    fn an_invalid_spec_is_an_error_of_its_controller() {
        let error = |object: Value| only(object).spec.unwrap_err().to_string();
        let two = json!({"builtin": "podgc", "file": "/a.wasm"});
        let two = error(with(controller("a", 1), "/spec", "module", two));
        assert!(
            two.starts_with("spec.module: expected one of builtin, file, configMap, oci"),
            "{two}"
        );
        let name = error(controller("b.example.com", 1));
        assert!(
            name.starts_with("metadata.name: it is not a DNS label"),
            "{name}"
        );
        let mut none = controller("a", 1);
        none.as_object_mut().unwrap().remove("spec");
        assert!(error(none).starts_with("spec"), "a missing spec");
    }

    #[test]
    fn a_status_that_cannot_be_read_counts_as_none_and_is_reported() {
        let mut declarations = Declarations::new(true);
        list(&mut declarations, &[]);
        let object = with(controller("a", 1), "", "status", json!({"stable": 7}));
        let change = declarations.handle(Update::Apply(item(&object)));
        assert!(change.is_news);
        let foreign = &change.foreign_statuses[0];
        assert_eq!(foreign.controller, "a");
        assert!(foreign.error.contains('7'), "{}", foreign.error);
        let declared = declarations.all().unwrap().remove(0);
        assert_eq!(declared.status, None);
        assert!(declared.spec.is_ok());
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let mut declarations = Declarations::new(false);
        let mut failure = |condition| declarations.handle(Update::Status(condition)).failure;
        let mut interrupted = |interruption: Interruption| {
            let reason = interruption.to_string();
            failure(Condition::Interrupted { reason }).unwrap()
        };
        assert_eq!(
            interrupted(Interruption::Lost("connection refused".to_owned())),
            "the Controllers cannot be watched: connection refused; will retry every few seconds"
        );
        for code in [401, 403, 500] {
            let message = interrupted(Interruption::Refused(Refusal {
                code,
                message: "no".to_owned(),
                retry_after: None,
            }));
            let advises = message.contains("the verbs get, list and watch");
            assert_eq!(advises, code != 500, "{message}");
        }
        let message = failure(Condition::NotServed).unwrap();
        assert!(message.contains(": apply deploy/crds/controllers.davit.dev.yaml;"));
        assert_eq!(failure(Condition::Synced), None);
    }
}
