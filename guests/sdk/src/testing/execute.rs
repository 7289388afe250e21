//! The execution of plans, as by the host and the API server together.

use serde_json::{Value, json};

use super::host::State;
use super::objects::{Id, failure, group_version, id_of, id_of_reference, plural, text};
use super::patch;
use crate::{DeleteOptions, Failure, ObjectRef, Patch, Plan, Step, Time};

impl State {
    /// Executes a plan's steps in their order, up to the first that fails.
    pub(super) fn execute(&mut self, plan: &Plan) -> Result<(), (u32, Failure)> {
        assert!(
            !plan.target.uid.is_empty(),
            "the plan for {} lacks the target's uid",
            plan.target
        );
        for (position, step) in (0..).zip(&plan.steps) {
            self.step(&plan.target, step)
                .map_err(|failure| (position, failure))?;
        }
        Ok(())
    }

    fn step(&mut self, target: &ObjectRef, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Patch(patch) => self.patch(target, patch),
            Step::Delete(options) => {
                self.writable("delete", target, "");
                self.delete(target, options)
            }
            Step::Evict(options) => {
                self.writable("create", target, "eviction");
                self.delete(target, options)
            }
            Step::Create(create) => self.create(target, &create.body),
            Step::Event(_) => Ok(()),
        }
    }

    /// Panics unless the manifest declares the permission for this write.
    fn writable(&self, verb: &str, target: &ObjectRef, subresource: &str) {
        let (group, _) = group_version(&json!({"apiVersion": target.api_version}));
        let resource = match subresource {
            "" => plural(&target.kind),
            subresource => format!("{}/{subresource}", plural(&target.kind)),
        };
        self.permitted(verb, &group, &resource);
    }

    /// The id of the target, if the API server has it under its uid.
    fn target(&self, target: &ObjectRef) -> Result<Id, Failure> {
        let id = id_of_reference(target);
        if let Some(failure) = self.write_failures.get(&id) {
            return Err(failure.clone());
        }
        match self.server.get(&id) {
            None => Err(failure("not-found", &target.to_string())),
            Some(object) if text(object, "uid") == target.uid => Ok(id),
            Some(_) => Err(failure("uid-mismatch", &target.to_string())),
        }
    }

    fn patch(&mut self, target: &ObjectRef, patch: &Patch) -> Result<(), Failure> {
        self.writable("patch", target, &patch.subresource);
        let id = self.target(target)?;
        let body = body(&patch.body);
        let mut object = self.server.get(&id).cloned().unwrap_or_default();
        let uid = body.pointer("/metadata/uid");
        if uid.is_some_and(|uid| *uid != text(&object, "uid")) {
            return Err(failure("uid-mismatch", &target.to_string()));
        }
        let version = body.pointer("/metadata/resourceVersion");
        if version.is_some_and(|it| *it != text(&object, "resourceVersion")) {
            return Err(failure("conflict", &target.to_string()));
        }
        match patch.kind.as_str() {
            "strategic-merge" => patch::strategic_merge(&mut object, &body),
            "merge" => patch::merge(&mut object, &body),
            kind => panic!("the harness knows no patch of the kind {kind}"),
        }
        self.replace(object);
        Ok(())
    }

    /// Deletes the target, unless finalizers keep it.
    fn delete(&mut self, target: &ObjectRef, options: &DeleteOptions) -> Result<(), Failure> {
        let id = self.target(target)?;
        let mut object = self.server.get(&id).cloned().unwrap_or_default();
        let version = &options.resource_version;
        if !version.is_empty() && *version != text(&object, "resourceVersion") {
            return Err(failure("conflict", &target.to_string()));
        }
        let finalizers = object.pointer("/metadata/finalizers");
        let kept = finalizers.and_then(Value::as_array);
        if kept.is_none_or(Vec::is_empty) {
            self.server.remove(&id);
            self.show(&id);
            return Ok(());
        }
        if text(&object, "deletionTimestamp").is_empty() {
            let now = Time::from_instant(self.now).to_string();
            patch::merge(
                &mut object,
                &json!({"metadata": {"deletionTimestamp": now}}),
            );
            self.replace(object);
        }
        Ok(())
    }

    fn create(&mut self, target: &ObjectRef, body: &[u8]) -> Result<(), Failure> {
        self.target(target)?;
        let object = self::body(body);
        let (group, _) = group_version(&object);
        let id = id_of(&object);
        self.permitted("create", &group, &plural(&id.0));
        if self.server.contains_key(&id) {
            return Err(failure("conflict", "the object exists already"));
        }
        self.replace(object);
        Ok(())
    }

    /// Puts a new version of an object on the server and into the cache.
    fn replace(&mut self, object: Value) {
        let id = self.put(object);
        self.show(&id);
    }
}

/// A body as it is sent. Its nulls count, so it is not decoded like a view.
fn body(bytes: &[u8]) -> Value {
    rmp_serde::from_slice(bytes).expect("a body of MessagePack")
}
