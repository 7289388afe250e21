//! Creating objects.

use super::strategy::match_namespace;
use super::{Model, WriteOptions, decode};
use crate::body::Body;
use crate::object::Object;
use crate::resource::{Generation, Resource};
use crate::status::{Result, Status};
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;
use crate::{defaults, validation};

/// How often a generated name may collide before the create fails.
const GENERATED_NAME_TRIES: usize = 8;

/// What `generateName` may contribute: names have at most 63 characters, five
/// of them generated.
const GENERATED_NAME_STEM: usize = 58;

impl Model {
    /// Creates the object that `body` describes.
    pub fn create(
        &mut self,
        now: Time,
        target: &Target,
        body: Body,
        options: &WriteOptions,
    ) -> Result<StoredObject> {
        let object = decode::object(target, body, options.strict)?;
        self.create_object(now, target, object, options)
    }

    /// Creates an object that is decoded already.
    pub(super) fn create_object(
        &mut self,
        now: Time,
        target: &Target,
        mut object: Object,
        options: &WriteOptions,
    ) -> Result<StoredObject> {
        let resource = target.resource.clone();
        match_namespace(target, &mut object)?;
        object.metadata.drop_repeated_owners();
        admit_to_definition(&resource, &object)?;
        self.admit_to_namespace(&resource, &object)?;
        self.check_grants(target, &object, None, options)?;
        self.prepare_new(now, &resource, &mut object);
        self.allocate(&resource, &mut object)?;
        let target = Target::new(&resource, &target.namespace, &object.metadata.name);
        check_new(&resource, &object)?;
        // What is no number is stored over.
        let version = object.metadata.resource_version.parse::<u64>();
        if version.is_ok_and(|version| version != 0) {
            return Err(Status::unclassified(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        if let Some(existing) = self.collection(&resource)?.get(&target.key()) {
            let terminating = existing.metadata()?.deletion_timestamp.is_some();
            return Err(Status::already_exists(
                resource.group_resource(),
                &target.name,
                terminating,
            ));
        }
        let stored = self.commit(now, &target, object, options.dry_run)?;
        if !options.dry_run {
            self.after_write(now, &target)?;
        }
        Ok(stored)
    }

    /// Nothing is created in a namespace that is missing or terminates.
    fn admit_to_namespace(&self, resource: &Resource, object: &Object) -> Result<()> {
        if !resource.namespaced {
            return Ok(());
        }
        let namespaces = self
            .resource("", "v1", "namespaces")
            .ok_or_else(|| Status::internal("no namespaces resource"))?;
        let name = &object.metadata.namespace;
        let Some(namespace) = self.collection(namespaces)?.get(name) else {
            return Err(Status::not_found(namespaces.group_resource(), name));
        };
        if namespace.metadata()?.deletion_timestamp.is_some() {
            return Err(Status::terminating_namespace(
                resource.group_resource(),
                &object.metadata.name,
                name,
            ));
        }
        Ok(())
    }

    fn prepare_new(&mut self, now: Time, resource: &Resource, object: &mut Object) {
        if resource.has_status() && !resource.rules.keeps_status {
            object.body.remove("status");
        }
        let metadata = &mut object.metadata;
        metadata.deletion_timestamp = None;
        metadata.deletion_grace_period_seconds = None;
        metadata.creation_timestamp = Some(now);
        metadata.uid = self.rng.uuid();
        metadata.generation = i64::from(resource.rules.generation != Generation::Unused);
        if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
            object.metadata.name = self.generate_name(resource, object);
        }
        (resource.rules.prepare)(object);
        decode::settle(resource, object);
        if let (Some(seconds), true) = (
            self.config.default_toleration_seconds,
            resource.rules.graceful,
        ) {
            defaults::tolerations(object, seconds);
        }
    }

    fn generate_name(&mut self, resource: &Resource, object: &Object) -> String {
        let stem: String = object
            .metadata
            .generate_name
            .chars()
            .take(GENERATED_NAME_STEM)
            .collect();
        let mut name = String::new();
        for _ in 0..GENERATED_NAME_TRIES {
            name = format!("{stem}{}", self.rng.name_suffix());
            let key = resource.key(&object.metadata.namespace, &name);
            let taken = self
                .collection(resource)
                .is_ok_and(|collection| collection.get(&key).is_some());
            if !taken {
                break;
            }
        }
        name
    }
}

/// No custom object is created while its definition terminates.
fn admit_to_definition(resource: &Resource, object: &Object) -> Result<()> {
    if resource
        .custom
        .as_ref()
        .is_none_or(|custom| !custom.terminating)
    {
        return Ok(());
    }
    Err(Status::forbidden(
        resource.group_resource(),
        &object.metadata.name,
        "create not allowed while custom resource definition is terminating",
    ))
}

fn check_new(resource: &Resource, object: &Object) -> Result<()> {
    let errors = validation::create(resource, object);
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(
        &resource.kind,
        &resource.group,
        &object.metadata.name,
        &errors,
    ))
}
