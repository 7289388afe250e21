//! The Controllers of a cluster, from the events of their watch: which controllers they
//! declare, and which changes the host has to know.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

use super::declaration::Declaration;
use super::requests::Requests;
use crate::api::{API_VERSION, ControllerSpec, ControllerStatus, KIND, SpecError, is_dns_label};
use crate::object::ObjectRef;

/// The pause before the watch is retried after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// An event of the watch, with the Controller in JSON.
#[derive(Clone, Debug)]
pub enum ControllerEvent {
    /// A list starts.
    ListStarted,
    /// The list has this Controller.
    Listed(Value),
    /// The list is complete: it replaces what was known.
    ListCompleted,
    /// A Controller was created or changed.
    Applied(Value),
    /// A Controller was deleted.
    Deleted(Value),
}

/// The effect of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeclarationChange {
    /// Whether the host has to know the declarations. A status that the host itself
    /// wrote is no news.
    pub is_news: bool,
    /// The status of a Controller that cannot be read. It counts as none.
    pub foreign_status: Option<ForeignStatus>,
}

/// A status that was not written by Davit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignStatus {
    /// The Controller.
    pub controller: String,
    /// Why the status cannot be read.
    pub error: String,
}

/// A failure of the watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControllerWatchFailure {
    /// The failure, and what to do.
    pub message: String,
    /// The pause before the watch is retried.
    pub retry_after: Duration,
}

/// The declarations of a cluster.
#[derive(Debug)]
pub struct Declarations {
    controllers: BTreeMap<String, Declaration>,
    /// The list that is being read.
    listing: BTreeMap<String, Declaration>,
    /// Whether a list was ever complete.
    is_complete: bool,
    /// Whether a status that changes is news: with leases, another replica writes it.
    follows_status: bool,
}

impl Declarations {
    /// No declarations yet. `has_leases` says whether there are other replicas.
    #[must_use]
    pub fn new(has_leases: bool) -> Self {
        Self {
            controllers: BTreeMap::new(),
            listing: BTreeMap::new(),
            is_complete: false,
            follows_status: has_leases,
        }
    }

    /// The declarations by name; none until the first list is complete.
    #[must_use]
    pub fn all(&self) -> Option<Vec<Declaration>> {
        let all = || self.controllers.values().cloned().collect();
        self.is_complete.then(all)
    }

    /// Handles an event.
    pub fn handle(&mut self, event: ControllerEvent) -> DeclarationChange {
        let mut change = DeclarationChange::default();
        match event {
            ControllerEvent::ListStarted => self.listing.clear(),
            ControllerEvent::Listed(object) => {
                if !is_going(&object) {
                    let declared = declare(object, &mut change.foreign_status);
                    self.listing.insert(declared.name.clone(), declared);
                }
            }
            ControllerEvent::ListCompleted => change.is_news = self.replace(),
            ControllerEvent::Applied(object) if !is_going(&object) => {
                let declared = declare(object, &mut change.foreign_status);
                let former = self.controllers.get(&declared.name);
                change.is_news = former.is_none_or(|former| !self.is_same(former, &declared));
                self.controllers.insert(declared.name.clone(), declared);
            }
            ControllerEvent::Applied(object) | ControllerEvent::Deleted(object) => {
                change.is_news = self.controllers.remove(&name_of(&object)).is_some();
            }
        }
        change
    }

    /// The list replaces what was known. Returns whether that is news.
    fn replace(&mut self) -> bool {
        let listed = std::mem::take(&mut self.listing);
        let is_same = self.controllers.len() == listed.len()
            && self
                .controllers
                .values()
                .zip(listed.values())
                .all(|(former, now)| self.is_same(former, now));
        self.controllers = listed;
        let is_first = !std::mem::replace(&mut self.is_complete, true);
        is_first || !is_same
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

impl ControllerWatchFailure {
    /// A failure for this reason; `code` is the code of the API server's answer, if it
    /// answered.
    #[must_use]
    pub fn new(code: Option<u16>, reason: &str) -> Self {
        let advice = match code {
            Some(404) => ": apply deploy/crds/controllers.davit.dev.yaml",
            Some(401 | 403) => {
                ": grant Davit's service account the verbs get, list and watch on \
                 controllers.davit.dev"
            }
            _ => "",
        };
        let seconds = RETRY_AFTER.as_secs();
        let message = format!(
            "the Controllers cannot be watched: {reason}{advice}; will retry every {seconds} s"
        );
        Self {
            message,
            retry_after: RETRY_AFTER,
        }
    }
}

/// A Controller that is being deleted does not run any more, even if finalizers keep it.
fn is_going(object: &Value) -> bool {
    let at = object.pointer("/metadata/deletionTimestamp");
    at.is_some_and(|at| !at.is_null())
}

fn name_of(object: &Value) -> String {
    text(object, "/metadata/name")
}

fn text(object: &Value, pointer: &str) -> String {
    let text = object.pointer(pointer).and_then(Value::as_str);
    text.unwrap_or_default().to_owned()
}

/// The controller that an object declares. Another version of Davit or an operator may
/// have written the object.
fn declare(mut object: Value, foreign: &mut Option<ForeignStatus>) -> Declaration {
    let mut part = |pointer: &str| object.pointer_mut(pointer).map(Value::take);
    let spec = part("/spec").unwrap_or_default();
    let status = part("/status").filter(|status| !status.is_null());
    let annotations = part("/metadata/annotations").unwrap_or_default();
    let annotations = serde_json::from_value(annotations).unwrap_or_default();
    let name = name_of(&object);
    Declaration {
        generation: object
            .pointer("/metadata/generation")
            .and_then(Value::as_i64),
        object: Some(ObjectRef {
            api_version: API_VERSION.to_owned(),
            kind: KIND.to_owned(),
            namespace: String::new(),
            name: name.clone(),
            uid: text(&object, "/metadata/uid"),
        }),
        status: status.and_then(|status| read_status(&name, status, foreign)),
        spec: read_spec(&name, &spec),
        requests: Requests::read(&annotations),
        name,
    }
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
    foreign: &mut Option<ForeignStatus>,
) -> Option<ControllerStatus> {
    match serde_json::from_value(status) {
        Ok(status) => Some(status),
        Err(error) => {
            *foreign = Some(ForeignStatus {
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

    /// Lists these Controllers. Returns whether they are news.
    fn list(declarations: &mut Declarations, objects: &[Value]) -> bool {
        declarations.handle(ControllerEvent::ListStarted);
        for object in objects {
            let listed = declarations.handle(ControllerEvent::Listed(object.clone()));
            assert!(!listed.is_news);
        }
        declarations.handle(ControllerEvent::ListCompleted).is_news
    }

    fn apply(declarations: &mut Declarations, object: Value) -> bool {
        declarations
            .handle(ControllerEvent::Applied(object))
            .is_news
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
    fn nothing_is_known_until_the_first_list_is_complete() {
        let mut declarations = Declarations::new(false);
        assert_eq!(declarations.all(), None);
        declarations.handle(ControllerEvent::ListStarted);
        declarations.handle(ControllerEvent::Listed(controller("a", 1)));
        assert_eq!(declarations.all(), None);
        // The list breaks, and another one starts: it no longer has the Controller.
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
        // Until a list is complete, what was known holds.
        declarations.handle(ControllerEvent::ListStarted);
        assert_eq!(names(&declarations), ["a", "b"]);
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
        assert!(apply(&mut declarations, object.clone()));
        assert!(!apply(&mut declarations, object.clone()));
        let annotated = with(
            object.clone(),
            "/metadata",
            "annotations",
            json!({"davit.dev/promote": "abc@2"}),
        );
        assert!(apply(&mut declarations, annotated));
        let all = declarations.all().unwrap();
        assert_eq!(all[0].requests.promote.as_deref(), Some("abc@2"));
        let recreated = with(object.clone(), "/metadata", "uid", json!("other"));
        assert!(apply(&mut declarations, recreated));
        assert!(apply(&mut declarations, controller("a", 2)));
        let labelled = with(
            controller("a", 2),
            "/metadata",
            "labels",
            json!({"team": "x"}),
        );
        assert!(!apply(&mut declarations, labelled));
    }

    #[test]
    fn a_status_is_news_only_if_other_replicas_write_it() {
        for has_leases in [false, true] {
            let mut declarations = Declarations::new(has_leases);
            list(&mut declarations, &[controller("a", 1)]);
            let changed = with(controller("a", 1), "", "status", json!({"summary": "fine"}));
            assert_eq!(apply(&mut declarations, changed.clone()), has_leases);
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
        assert!(apply(&mut declarations, going(controller("a", 1))));
        assert_eq!(names(&declarations), [""; 0]);
        assert!(!apply(&mut declarations, going(controller("a", 1))));
        assert!(apply(&mut declarations, controller("a", 1)));
        let deleted = ControllerEvent::Deleted(controller("a", 1));
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
        let change = declarations.handle(ControllerEvent::Applied(object));
        assert!(change.is_news);
        let foreign = change.foreign_status.unwrap();
        assert_eq!(foreign.controller, "a");
        assert!(foreign.error.contains('7'), "{}", foreign.error);
        let declared = declarations.all().unwrap().remove(0);
        assert_eq!(declared.status, None);
        assert!(declared.spec.is_ok());
    }

    #[test]
    fn a_failure_says_what_to_do() {
        let message = |code| ControllerWatchFailure::new(code, "not found").message;
        assert_eq!(
            message(None),
            "the Controllers cannot be watched: not found; will retry every 5 s"
        );
        assert!(message(Some(404)).contains(": apply deploy/crds/controllers.davit.dev.yaml;"));
        for code in [401, 403] {
            let message = message(Some(code));
            assert!(
                message.contains("the verbs get, list and watch"),
                "{message}"
            );
        }
        assert_eq!(message(Some(500)), message(None));
    }
}
