//! Server-side apply.

use serde::Serialize;

use crate::dynamic::Value;
use crate::{Object, ObjectRef, Patch, Plan, msgpack};

impl Plan {
    /// Applies a configuration, of the target or another object: see [`Patch::apply`]. It needs
    /// the verbs `patch` and `create` on the object's resource: the manifest
    /// [applies](crate::Manifest::applies) it.
    #[must_use]
    pub fn apply(self, configuration: &impl Serialize) -> Self {
        self.patch(Patch::apply(configuration))
    }
}

/// # Server-side apply
///
/// A configuration has `apiVersion`, `kind`, `metadata.name`, and the fields that the
/// controller wants to have these values. The field manager is the controller. A field that
/// the controller applied before and leaves out now is removed. To apply the same again
/// changes nothing.
///
/// ```
/// # use davit_guest::{ObjectRef, Patch, Plan, Reason, value};
/// const MISSING: Reason = Reason::new("missing");
///
/// fn plan(site: ObjectRef) -> Plan {
///     let page = value!({
///         "apiVersion": "v1",
///         "kind": "ConfigMap",
///         "metadata": {
///             "namespace": (site.namespace.as_str()),
///             "name": (site.name.as_str()),
///             "ownerReferences": [(site.owner_reference())],
///         },
///         "data": {"index.html": "<h1>Hello</h1>"},
///     });
///     Plan::new(site, MISSING, "the site has no page").patch(Patch::apply(&page))
/// }
/// ```
///
/// A plan applies its target or another object. The host never applies the target to an
/// object that has its name by now. For another object, name the one that was read with
/// [`only`](Patch::only). Without it, a missing object is created, and one that exists is
/// written if the target is among its owners; otherwise the step fails with a conflict. So an
/// object of somebody else that has the name stays as it is.
impl Patch {
    /// Applies a configuration. A field that another field manager has with another value
    /// fails the step with a conflict: see [`force`](Self::force).
    ///
    /// It needs the verbs `patch` and `create` on the resource: the manifest
    /// [applies](crate::Manifest::applies) it. If the object has to exist, because it is the
    /// plan's target or is named by [`only`](Self::only), `patch` is enough: the manifest
    /// [patches](crate::Manifest::patches) the resource.
    #[must_use]
    pub fn apply(configuration: &impl Serialize) -> Self {
        Self {
            kind: "apply".to_owned(),
            subresource: String::new(),
            body: msgpack::encode(configuration),
        }
    }

    /// Applies the status of an object, unless somebody has changed the object since it was
    /// read. Do not write the object in an earlier step of the plan. It needs the verb `patch` on
    /// `RESOURCE/status`: the manifest [patches the status](crate::Manifest::patches_status).
    ///
    /// A list of the status is replaced as a whole, with what other controllers have written
    /// there, unless the definition of the resource makes it a map: see
    /// [`Conditions`](crate::Conditions).
    #[must_use]
    pub fn apply_status<T>(object: &Object<T>, status: &impl Serialize) -> Self {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Configuration<'a, S> {
            api_version: &'a str,
            kind: &'a str,
            metadata: Metadata<'a>,
            status: &'a S,
        }
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Metadata<'a> {
            #[serde(skip_serializing_if = "str::is_empty")]
            namespace: &'a str,
            name: &'a str,
            uid: &'a str,
            resource_version: &'a str,
        }
        let reference = &object.reference;
        Self::apply(&Configuration {
            api_version: &reference.api_version,
            kind: &reference.kind,
            metadata: Metadata {
                namespace: &reference.namespace,
                name: &reference.name,
                uid: &reference.uid,
                resource_version: &object.resource_version,
            },
            status,
        })
        .status()
    }

    /// Takes the applied fields from other field managers.
    #[must_use]
    pub fn force(mut self) -> Self {
        "apply-force".clone_into(&mut self.kind);
        self
    }

    /// Applies to this object alone, which the configuration names: not to another one that
    /// has its name by now, and it creates nothing.
    #[must_use]
    pub fn only(mut self, object: &ObjectRef) -> Self {
        let mut body: Value = msgpack::decode(&self.body).unwrap_or_default();
        if let Some(metadata) = body.get_mut("metadata") {
            metadata.set("uid", object.uid.as_str().into());
        }
        self.body = msgpack::encode(&body);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Instant, value};

    fn body(patch: &Patch) -> serde_json::Value {
        msgpack::decode(&patch.body).unwrap_or_default()
    }

    #[test]
    fn an_apply_names_the_object_that_was_read() {
        let read = ObjectRef {
            uid: "u-1".to_owned(),
            ..ObjectRef::named("v1", "ConfigMap", "ns", "a")
        };
        let wanted = value!({"metadata": {"name": "a"}, "data": {"a": "1"}});
        let patch = Patch::apply(&wanted).only(&read);
        assert_eq!(patch.kind, "apply");
        assert_eq!(
            body(&patch),
            serde_json::json!({"metadata": {"name": "a", "uid": "u-1"}, "data": {"a": "1"}})
        );
        assert_eq!(patch.force().kind, "apply-force");
    }

    #[test]
    fn a_status_is_applied_to_the_version_that_was_read() {
        let object = Object {
            reference: ObjectRef {
                uid: "u-1".to_owned(),
                ..ObjectRef::named("example.com/v1", "Site", "", "a")
            },
            resource_version: "7".to_owned(),
            changed_at: Instant::from_millis(0),
            view: (),
        };
        let patch = Patch::apply_status(&object, &value!({"pages": 1}));
        assert_eq!(patch.subresource, "status");
        assert_eq!(
            body(&patch),
            serde_json::json!({
                "apiVersion": "example.com/v1", "kind": "Site",
                "metadata": {"name": "a", "uid": "u-1", "resourceVersion": "7"},
                "status": {"pages": 1},
            })
        );
    }
}
