//! The short way for tests: objects as JSON, no HTTP.

use std::io::BufRead;

use serde_json::Value;

use super::Sim;
use crate::direct;
use crate::load::{self, LoadError};
use crate::model::{DeleteOptions, DeletionStep};
use crate::status::Result;

impl Sim {
    /// Creates an object; see [`direct::create`].
    pub fn create(&self, object: Value) -> Result<Value> {
        self.with_model(|model, now| direct::create(model, now, object))
    }

    /// Reads an object.
    pub fn get(&self, api_version: &str, kind: &str, namespace: &str, name: &str) -> Result<Value> {
        self.with_model(|model, _| direct::get(model, api_version, kind, namespace, name))
    }

    /// Reads all objects of a kind, of one namespace or (empty) of all.
    pub fn list(&self, api_version: &str, kind: &str, namespace: &str) -> Result<Vec<Value>> {
        self.with_model(|model, _| direct::list(model, api_version, kind, namespace))
    }

    /// Replaces an object; see [`direct::update`].
    pub fn update(&self, object: Value) -> Result<Value> {
        self.with_model(|model, now| direct::update(model, now, object))
    }

    /// Merges into an object, or creates it; see [`direct::apply`].
    pub fn apply(&self, object: Value) -> Result<Value> {
        self.with_model(|model, now| direct::apply(model, now, object))
    }

    /// Deletes an object.
    pub fn delete(
        &self,
        api_version: &str,
        kind: &str,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
    ) -> Result<()> {
        self.with_model(|model, now| {
            direct::delete(model, now, (api_version, kind), namespace, name, options).map(drop)
        })
    }

    /// Loads what kubectl printed; see [`load::load`].
    pub fn load(&self, text: &str) -> std::result::Result<usize, LoadError> {
        self.load_from(text.as_bytes())
    }

    /// The same from a file, which need not fit into memory.
    pub fn load_from(&self, input: impl BufRead) -> std::result::Result<usize, LoadError> {
        self.with_model(|model, now| load::load(model, now, input))
    }

    /// What happened to the object with that uid on its way out.
    #[must_use]
    pub fn deletions_of(&self, uid: &str) -> Vec<DeletionStep> {
        self.with_model(|model, _| model.deletions_of(uid).to_vec())
    }
}
