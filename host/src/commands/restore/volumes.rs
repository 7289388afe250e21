//! Restored volumes and claims bind again.
//!
//! The volume controller of Kubernetes takes a volume whose `spec.claimRef` has the uid of a claim
//! that is gone for released, and executes its reclaim policy: `Delete` deletes the storage.
//! The same holds for a claim that is being deleted, or that names another volume. Without a uid, the
//! volume is reserved for the claim of that name. A claim whose binding is
//! annotated as completed is lost if its volume names another uid; without the annotations, it
//! binds again to `spec.volumeName`.

use serde_json::Value;

use super::cluster::is_being_deleted;
use super::object::Restorable;
use crate::commands::print::text_at;

/// On a claim: its binding is completed.
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";
/// On a claim and a volume: the controller has bound them, not a user.
const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";

/// The claim that a volume was bound to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
}

impl Claim {
    /// Why a volume cannot be bound to this claim by its uid; none if it can. Takes the claim
    /// that has its name now.
    pub(super) fn why_unbound(&self, found: Option<&Value>, volume: &str) -> Option<String> {
        let Some(found) = found else {
            return Some("it is gone".to_owned());
        };
        let uid = text_at(found, "/metadata/uid");
        if uid != self.uid {
            return Some(format!(
                "it is gone, and another claim, {uid}, has its name"
            ));
        }
        if is_being_deleted(found) {
            return Some("it is being deleted".to_owned());
        }
        let other = text_at(found, "/spec/volumeName");
        (!other.is_empty() && other != volume).then(|| format!("it names the volume {other}"))
    }
}

impl Restorable {
    /// Leaves out what binds a volume or a claim to an object that may be gone.
    pub(super) fn unbind(&mut self) {
        if self.is("v1", "PersistentVolume") {
            self.unbind_volume();
        } else if self.is("v1", "PersistentVolumeClaim") {
            self.unbind_claim();
        }
    }

    /// The claim that the volume was bound to still exists, and can bind to it again.
    pub(super) fn bind_volume(&mut self, claim: &Claim) {
        if let Some(reference) = self.map("/spec/claimRef") {
            reference.insert("uid".to_owned(), Value::from(claim.uid.as_str()));
        }
        let Claim {
            namespace,
            name,
            uid,
        } = claim;
        self.notes.push(format!(
            "kept after all: spec.claimRef.uid: the claim {namespace}/{name} ({uid}) still exists"
        ));
    }

    /// The volume is not bound to the claim that it was bound to: why.
    pub(super) fn reserve_volume(&mut self, claim: &Claim, why: &str) {
        let Claim {
            namespace,
            name,
            uid,
        } = claim;
        self.notes.push(format!(
            "spec.claimRef.uid stays left out: the claim {namespace}/{name} ({uid}): {why}"
        ));
    }

    fn unbind_volume(&mut self) {
        let of = |field: &str| text_at(&self.object, &format!("/spec/claimRef/{field}")).to_owned();
        let claim = Claim {
            namespace: of("namespace"),
            name: of("name"),
            uid: of("uid"),
        };
        if claim.uid.is_empty() {
            return;
        }
        if let Some(reference) = self.map("/spec/claimRef") {
            reference.remove("uid");
            reference.remove("resourceVersion");
        }
        self.remove_annotations(&[BOUND_BY_CONTROLLER]);
        let Claim {
            namespace, name, ..
        } = &claim;
        self.notes.push(format!(
            "left out: spec.claimRef.uid and resourceVersion: the volume is reserved for the claim \
             {namespace}/{name} and binds to it again; with the uid of a claim that cannot \
             bind to it, it would be released, and its reclaim policy executed"
        ));
        self.claim = Some(claim);
    }

    fn unbind_claim(&mut self) {
        if !self.remove_annotations(&[BIND_COMPLETED, BOUND_BY_CONTROLLER]) {
            return;
        }
        let volume = text_at(&self.object, "/spec/volumeName").to_owned();
        self.notes.push(format!(
            "left out: the annotations of the completed binding: the claim binds again to the \
             volume {volume}, if that exists and its spec.claimRef names no other uid; of a \
             Released volume, remove spec.claimRef.uid"
        ));
    }

    /// Whether there was one of them.
    fn remove_annotations(&mut self, names: &[&str]) -> bool {
        let Some(metadata) = self.map("/metadata") else {
            return false;
        };
        let Some(Value::Object(annotations)) = metadata.get_mut("annotations") else {
            return false;
        };
        let before = annotations.len();
        annotations.retain(|name, _| !names.contains(&name.as_str()));
        let is_changed = annotations.len() < before;
        if is_changed && annotations.is_empty() {
            metadata.remove("annotations");
        }
        is_changed
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_restored_volume_is_reserved_for_the_claim_of_that_name() {
        let volume = json!({
            "apiVersion": "v1", "kind": "PersistentVolume",
            "metadata": {"name": "pv", "annotations": {BOUND_BY_CONTROLLER: "yes", "a": "b"}},
            "spec": {"claimRef": {
                "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data", "uid": "c-1",
                "resourceVersion": "7",
            }},
        });
        let mut restorable = Restorable::of(volume);
        let reference = json!({
            "kind": "PersistentVolumeClaim", "namespace": "shop", "name": "data",
        });
        assert_eq!(restorable.object["spec"]["claimRef"], reference);
        let annotations = &restorable.object["metadata"]["annotations"];
        assert_eq!(*annotations, json!({"a": "b"}));
        assert!(restorable.notes[0].contains("shop/data"));

        let claim = restorable.claim.clone().unwrap();
        assert_eq!(claim.uid, "c-1");
        restorable.bind_volume(&claim);
        assert_eq!(restorable.object["spec"]["claimRef"]["uid"], "c-1");
    }

    #[test]
    fn a_volume_is_bound_by_uid_only_to_a_claim_that_can_bind_to_it() {
        let claim = Claim {
            namespace: "shop".to_owned(),
            name: "data".to_owned(),
            uid: "c-1".to_owned(),
        };
        let why = |found: &Value| claim.why_unbound(Some(found), "pv");
        let found =
            |volume: &str| json!({"metadata": {"uid": "c-1"}, "spec": {"volumeName": volume}});
        assert_eq!(why(&json!({"metadata": {"uid": "c-1"}})), None);
        assert_eq!(why(&found("")), None);
        assert_eq!(why(&found("pv")), None);
        assert_eq!(why(&found("other")).unwrap(), "it names the volume other");
        let mut dying = found("pv");
        dying["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z".into();
        assert_eq!(why(&dying).unwrap(), "it is being deleted");
        let other = json!({"metadata": {"uid": "c-2"}});
        assert!(why(&other).unwrap().contains("another claim, c-2"));
        assert_eq!(claim.why_unbound(None, "pv").unwrap(), "it is gone");
    }

    #[test]
    fn a_restored_claim_binds_again_to_its_volume() {
        let claim = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data",
                "annotations": {BIND_COMPLETED: "yes", BOUND_BY_CONTROLLER: "yes"},
            },
            "spec": {"volumeName": "pv"},
        });
        let restorable = Restorable::of(claim);
        let metadata = json!({"name": "data"});
        assert_eq!(restorable.object["metadata"], metadata);
        assert_eq!(restorable.object["spec"]["volumeName"], "pv");
        assert!(restorable.notes[0].contains("volume pv"));
    }

    #[test]
    fn a_volume_that_was_never_bound_stays_as_it_is() {
        for spec in [json!({}), json!({"claimRef": {"name": "data"}})] {
            let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "spec": spec});
            let restorable = Restorable::of(volume.clone());
            assert_eq!(restorable.object, volume);
            assert!(restorable.notes.is_empty());
        }
    }
}
