//! What a kept object becomes before it is created again. No requests are sent here.

use serde_json::{Map, Value};

use super::rerun::Rerun;
use super::volumes::Claim;
use crate::commands::print::{part, text_at};

/// The fields of metadata that belong to the deleted object alone.
const OWN_METADATA: [&str; 8] = [
    "uid",
    "resourceVersion",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "managedFields",
    "selfLink",
];
/// Finalizers that the API server adds to an object that is being deleted.
const OF_DELETION: [&str; 2] = ["foregroundDeletion", "orphan"];
/// Labels of the pods of a Job that name its uid.
const UIDS_OF_JOBS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// An owner of a kept object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) uid: String,
}

/// An object to create, and what is different from the kept one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restorable {
    pub(super) object: Value,
    /// A sentence for each part that was left out or needs attention.
    pub(super) notes: Vec<String>,
    /// Work that the object does again.
    pub(super) rerun: Option<Rerun>,
    /// The claim that a volume was bound to.
    pub(super) claim: Option<Claim>,
}

impl Restorable {
    /// A kept object without its identity and its status.
    pub(super) fn of(kept: Value) -> Self {
        let mut restorable = Self {
            rerun: Rerun::of(&kept),
            object: kept,
            notes: Vec::new(),
            claim: None,
        };
        let rerun = restorable.rerun.iter().map(|rerun| rerun.note.clone());
        restorable.notes.extend(rerun);
        restorable.check_deletion();
        if let Some(fields) = restorable.object.as_object_mut() {
            fields.remove("status");
        }
        if let Some(metadata) = restorable.map("/metadata") {
            for field in OWN_METADATA {
                metadata.remove(field);
            }
        }
        restorable.check_finalizers();
        restorable.drop_ephemeral_containers();
        restorable.free_job();
        restorable.unbind();
        restorable
    }

    pub(super) fn owners(&self) -> Vec<Owner> {
        let owners = part(&self.object, "/metadata/ownerReferences").as_array();
        let owners = owners.into_iter().flatten().map(|owner| Owner {
            api_version: text_at(owner, "/apiVersion").to_owned(),
            kind: text_at(owner, "/kind").to_owned(),
            name: text_at(owner, "/name").to_owned(),
            uid: text_at(owner, "/uid").to_owned(),
        });
        owners.collect()
    }

    /// Drops the reference to an owner: the garbage collector would delete the object.
    pub(super) fn drop_owner(&mut self, owner: &Owner, why: &str) {
        let Owner {
            kind, name, uid, ..
        } = owner;
        self.notes.push(format!(
            "left out: the owner reference to {kind} {name} ({uid}): {why}"
        ));
        let Some(metadata) = self.map("/metadata") else {
            return;
        };
        if let Some(Value::Array(owners)) = metadata.get_mut("ownerReferences") {
            owners.retain(|one| text_at(one, "/uid") != uid);
            if owners.is_empty() {
                metadata.remove("ownerReferences");
            }
        }
    }

    /// The node that a pod is bound to; none for other objects.
    pub(super) fn node(&self) -> Option<&str> {
        let is_pod = self.is("v1", "Pod");
        let node = text_at(&self.object, "/spec/nodeName");
        (is_pod && !node.is_empty()).then_some(node)
    }

    /// Drops what `kubectl debug` has added to a pod: a pod is not created with it.
    fn drop_ephemeral_containers(&mut self) {
        if !self.is("v1", "Pod") {
            return;
        }
        let spec = self.map("/spec");
        if spec.is_some_and(|spec| spec.remove("ephemeralContainers").is_some()) {
            let note = "left out: spec.ephemeralContainers: a pod cannot be created with them";
            self.notes.push(note.to_owned());
        }
    }

    /// Drops the node of a pod: the scheduler chooses another one.
    pub(super) fn drop_node(&mut self) {
        let node = self.node().unwrap_or_default().to_owned();
        if let Some(spec) = self.map("/spec") {
            spec.remove("nodeName");
        }
        self.notes.push(format!(
            "left out: spec.nodeName: there is no node {node}, so the scheduler chooses one"
        ));
    }

    pub(super) fn is(&self, api_version: &str, kind: &str) -> bool {
        let of = |pointer| text_at(&self.object, pointer);
        (of("/apiVersion"), of("/kind")) == (api_version, kind)
    }

    pub(super) fn map(&mut self, pointer: &str) -> Option<&mut Map<String, Value>> {
        self.object.pointer_mut(pointer)?.as_object_mut()
    }

    /// A copy of an object that was being deleted may lack what its deletion had removed.
    fn check_deletion(&mut self) {
        let since = text_at(&self.object, "/metadata/deletionTimestamp").to_owned();
        if since.is_empty() {
            return;
        }
        self.notes.push(format!(
            "the object was being deleted already when it was kept, since {since}: finalizers \
             that had been removed by then are missing"
        ));
    }

    fn check_finalizers(&mut self) {
        let Some(metadata) = self.map("/metadata") else {
            return;
        };
        let Some(Value::Array(finalizers)) = metadata.get_mut("finalizers") else {
            return;
        };
        finalizers.retain(|one| !OF_DELETION.iter().any(|of_deletion| one == of_deletion));
        let kept = finalizers.iter().filter_map(Value::as_str);
        let kept = kept.collect::<Vec<_>>().join(", ");
        if kept.is_empty() {
            metadata.remove("finalizers");
        } else {
            self.notes.push(format!(
                "kept: the finalizers {kept}: their controllers have to run before the object can \
                 be deleted again"
            ));
        }
    }

    /// The API server makes the selector of a Job from the uid, which is another one now.
    fn free_job(&mut self) {
        let has_own_selector = *part(&self.object, "/spec/manualSelector") == Value::Bool(true);
        if !self.is("batch/v1", "Job") || has_own_selector {
            return;
        }
        if let Some(spec) = self.map("/spec") {
            spec.remove("selector");
        }
        for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
            if let Some(labels) = self.map(labels) {
                labels.retain(|name, _| !UIDS_OF_JOBS.contains(&name.as_str()));
            }
        }
        self.notes.push(
            "left out: spec.selector and the labels with the Job's uid: the API server makes them \
             from the new uid"
                .to_owned(),
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                "annotations": {"a": "b"}, "generateName": "web-",
                "uid": "u-1", "resourceVersion": "5", "generation": 3, "selfLink": "/x",
                "creationTimestamp": "2026-01-01T00:00:00Z",
                "deletionTimestamp": "2026-01-02T00:00:00Z", "deletionGracePeriodSeconds": 30,
                "managedFields": [{"manager": "x"}],
                "finalizers": ["foregroundDeletion", "example.com/backup"],
                "ownerReferences": [
                    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "o-1"},
                    {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "o-2"},
                ],
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
            "status": {"phase": "Failed"},
        })
    }

    #[test]
    fn a_restored_object_has_nothing_of_the_identity_and_the_status_of_the_deleted_one() {
        let restorable = Restorable::of(pod());
        assert_eq!(
            restorable.object,
            json!({
                "apiVersion": "v1", "kind": "Pod",
                "metadata": {
                    "name": "web-0", "namespace": "shop", "labels": {"app": "web"},
                    "annotations": {"a": "b"}, "generateName": "web-",
                    "finalizers": ["example.com/backup"],
                    "ownerReferences": pod()["metadata"]["ownerReferences"],
                },
                "spec": pod()["spec"],
            })
        );
        let [rerun, deletion, finalizers] = &*restorable.notes else {
            panic!("three notes: {:?}", restorable.notes);
        };
        assert!(rerun.contains("had ended (Failed)"));
        assert!(deletion.contains("since 2026-01-02T00:00:00Z"));
        assert!(finalizers.contains("example.com/backup") && !finalizers.contains("foreground"));
    }

    #[test]
    fn a_pod_that_was_debugged_has_no_ephemeral_containers() {
        let mut debugged = pod();
        debugged["spec"]["ephemeralContainers"] = json!([{"name": "debugger", "image": "i"}]);
        let restorable = Restorable::of(debugged);
        assert_eq!(restorable.object["spec"], pod()["spec"]);
        let mut notes = restorable.notes.iter();
        assert!(notes.any(|note| note.contains("spec.ephemeralContainers")));
    }

    #[test]
    fn an_owner_that_is_gone_is_left_out_and_named() {
        let mut restorable = Restorable::of(pod());
        let [first, second] = &*restorable.owners() else {
            panic!("two owners");
        };
        restorable.drop_owner(first, "it is gone");
        let left = restorable.owners();
        assert_eq!(left.first(), Some(second));
        assert!(
            restorable
                .notes
                .last()
                .unwrap()
                .contains("ReplicaSet web (o-1): it is gone")
        );
        restorable.drop_owner(second, "it is gone");
        assert!(
            restorable.object["metadata"]
                .get("ownerReferences")
                .is_none()
        );
    }

    #[test]
    fn a_pod_whose_node_is_gone_is_scheduled_again() {
        let mut restorable = Restorable::of(pod());
        assert_eq!(restorable.node(), Some("n1"));
        restorable.drop_node();
        assert_eq!(restorable.node(), None);
        assert!(
            restorable
                .notes
                .last()
                .unwrap()
                .contains("there is no node n1")
        );
        let mut other = pod();
        other["kind"] = "PodTemplate".into();
        assert_eq!(Restorable::of(other).node(), None);
    }

    #[test]
    fn a_job_gets_its_selector_from_the_api_server() {
        let job = |own: bool| {
            let labels = json!({"controller-uid": "u", "job-name": "j"});
            json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "j"},
                "spec": {
                    "manualSelector": own, "selector": {"matchLabels": {"controller-uid": "u"}},
                    "template": {"metadata": {"labels": labels}},
                },
            })
        };
        let restored = Restorable::of(job(false)).object;
        assert!(restored["spec"].get("selector").is_none());
        let labels = &restored["spec"]["template"]["metadata"]["labels"];
        assert_eq!(*labels, json!({"job-name": "j"}));
        assert_eq!(Restorable::of(job(true)).object, job(true));
    }

    #[test]
    fn an_object_of_another_shape_stays_as_it_is() {
        for odd in [json!(null), json!([]), json!({"metadata": 1, "spec": "x"})] {
            assert_eq!(Restorable::of(odd.clone()).object, odd);
        }
    }
}
