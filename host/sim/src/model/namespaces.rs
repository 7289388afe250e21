//! The actions of the namespace controller, for its simulation.

use serde_json::Value;

use super::{DeleteOptions, Model, WriteOptions};
use crate::status::Result;
use crate::stored::StoredObject;
use crate::target::Target;
use crate::time::Time;

impl Model {
    /// Deletes the content of terminating namespaces, and removes the finalizer of those
    /// without content. Returns how many terminating namespaces are left.
    pub fn sweep_namespaces(&mut self, now: Time) -> Result<usize> {
        let Some(resource) = self.resource("", "v1", "namespaces").cloned() else {
            return Ok(0);
        };
        let mut terminating = Vec::new();
        for (name, stored) in self.collection(&resource)?.scan("") {
            if stored.metadata()?.deletion_timestamp.is_some() {
                terminating.push((Target::new(&resource, "", name), stored.clone()));
            }
        }
        let mut waiting = 0;
        for (target, stored) in terminating {
            if self.empty_namespace(now, &target.name)? {
                self.release_namespace(now, target, &stored)?;
            } else {
                waiting += 1;
            }
        }
        Ok(waiting)
    }

    /// Deletes the content, and returns whether there is none left.
    fn empty_namespace(&mut self, now: Time, namespace: &str) -> Result<bool> {
        let prefix = format!("{namespace}/");
        let mut content = Vec::new();
        for resource in &self.resources {
            if !resource.namespaced || resource.storage_version.is_empty() {
                continue;
            }
            for (key, stored) in self.collection(resource)?.scan(&prefix) {
                let name = key.strip_prefix(prefix.as_str()).unwrap_or_default();
                let marked = stored.metadata()?.deletion_timestamp.is_some();
                content.push((Target::new(resource, namespace, name), marked));
            }
        }
        for (target, marked) in content {
            if !marked {
                match self.delete(now, &target, &DeleteOptions::default()) {
                    // Two versions of a resource list the same object.
                    Err(status) if status.code != 404 => return Err(status),
                    _ => {}
                }
            }
        }
        Ok(self
            .resources
            .iter()
            .filter(|resource| resource.namespaced)
            .filter_map(|resource| self.collection(resource).ok())
            .all(|collection| collection.scan(&prefix).next().is_none()))
    }

    fn release_namespace(
        &mut self,
        now: Time,
        mut target: Target,
        stored: &StoredObject,
    ) -> Result<()> {
        let mut namespace = stored.object()?;
        if let Some(Value::Array(finalizers)) = namespace.section("spec").get_mut("finalizers") {
            finalizers.retain(|name| name != "kubernetes");
        }
        "finalize".clone_into(&mut target.subresource);
        self.write(now, &target, stored, namespace, &WriteOptions::default())
            .map(drop)
    }
}
