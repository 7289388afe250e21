//! Taking over objects from elsewhere, as they are.

use serde_json::Value;

use super::{Model, decode};
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

impl Model {
    /// Stores an object from another cluster: uid, times, owner references and status
    /// stay, only the version is new. Missing fields get defaults. An object of the
    /// same name is replaced.
    pub fn import(&mut self, now: Time, object: Value) -> Result<StoredObject> {
        self.take_over(now, object, Some(now), false)
    }

    /// The same for an object that is hardly read: it is compressed until it changes.
    pub fn import_compressed(&mut self, now: Time, object: Value) -> Result<StoredObject> {
        self.take_over(now, object, Some(now), true)
    }

    /// The same without a default for the creation time: an object may lack one.
    pub fn import_undated(&mut self, now: Time, object: Value) -> Result<StoredObject> {
        self.take_over(now, object, None, false)
    }

    fn take_over(
        &mut self,
        now: Time,
        object: Value,
        created: Option<Time>,
        compresses: bool,
    ) -> Result<StoredObject> {
        let text = |name: &str| object.get(name).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let resource = self.resource_of_kind(api_version, kind).cloned().ok_or_else(|| {
            Status::bad_request(format!(
                "no resource with apiVersion {api_version:?} and kind {kind:?} is served: load its CustomResourceDefinition first"
            ))
        })?;
        let mut object = decode::complete(&resource, object, false)
            .map_err(|why| decode::unhandled(&resource, &why))?;
        let metadata = &mut object.metadata;
        if metadata.name.is_empty() {
            return Err(Status::bad_request(format!(
                "a {} without metadata.name",
                resource.kind
            )));
        }
        if resource.namespaced && metadata.namespace.is_empty() {
            "default".clone_into(&mut metadata.namespace);
        }
        if metadata.uid.is_empty() {
            metadata.uid = self.rng.uuid();
        }
        metadata.creation_timestamp = metadata.creation_timestamp.or(created);
        let target = Target::new(&resource, &metadata.namespace, &metadata.name);
        if resource.namespaced {
            self.ensure_namespace(now, &target.namespace)?;
        }
        let mut stored = self.next(&target, object)?;
        if compresses {
            stored = self.collection_mut(&target.resource)?.compressed(stored)?;
        }
        self.put(now, &target, stored.clone())?;
        self.after_write(now, &target)?;
        Ok(stored)
    }

    /// Removes an object whatever holds it, as if it had never been served: the way
    /// back of [`Self::import`].
    pub fn expel(&mut self, now: Time, target: &Target) -> Result<()> {
        let last = self.stored(target)?.clone();
        self.remove(now, target, &last, false)?;
        self.after_write(now, target)
    }
}
