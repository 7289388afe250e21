//! Reads modules and certificates from `ConfigMaps` and credentials from Secrets.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::Api;
use kube::core::{ObjectMeta, Resource};
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::pull_secret::{Credentials, SecretError};
use davit_core::api::{KeyReference, SecretReference};

/// The largest value, in bytes: the API server accepts no larger `ConfigMap`.
const MOST_BYTES: usize = 1 << 20;

/// How long the API server may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why an object of the cluster cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("the {object}")]
pub struct ObjectError {
    /// Its kind, namespace and name: `Secret davit/registry`.
    pub object: String,
    /// The problem.
    #[source]
    pub problem: ObjectProblem,
}

/// A problem with an object.
#[derive(Debug, thiserror::Error)]
pub enum ObjectProblem {
    /// Davit was started without a cluster.
    #[error("there is no cluster to read the object from")]
    NoCluster,
    /// It does not exist.
    #[error("the object does not exist")]
    Missing,
    /// RBAC.
    #[error("Davit may not read the object: grant Davit's service account the verb get on it")]
    Forbidden,
    /// The API server did not answer.
    #[error("the API server did not answer within {} s", PATIENCE.as_secs())]
    NoAnswer,
    /// Another error.
    #[error("the object cannot be read: {0}")]
    Unreadable(String),
    /// The key is missing.
    #[error(
        "there is no key \"{key}\" under {field}; the keys there: {}",
        list(keys)
    )]
    NoKey {
        /// The key.
        key: String,
        /// The field that should hold it.
        field: &'static str,
        /// The keys of that field.
        keys: Vec<String>,
    },
    /// The module is under `data`.
    #[error(
        "the key \"{0}\" is under data, which holds text: put the module under binaryData, as \
         kubectl create configmap --from-file does"
    )]
    Text(String),
    /// Larger than a `ConfigMap` can be.
    #[error(
        "the key \"{key}\" has {bytes} bytes, and a ConfigMap holds {MOST_BYTES} at most: put a \
         module of this size into a registry"
    )]
    TooLarge {
        /// The key.
        key: String,
        /// Its size.
        bytes: usize,
    },
    /// The credentials cannot be used.
    #[error(transparent)]
    Secret(#[from] SecretError),
}

/// The cluster that modules are read from.
#[derive(Clone)]
pub(super) struct Cluster(pub(super) Option<kube::Client>);

impl Cluster {
    /// A module under `binaryData`.
    pub(super) async fn module(&self, at: &KeyReference) -> Result<Vec<u8>, ObjectError> {
        let found: ConfigMap = self.get(&at.namespace, &at.name).await?;
        let named = |problem| error("ConfigMap", &at.namespace, &at.name, problem);
        binary_value(found, &at.key).map_err(named)
    }

    /// A text under `data`.
    pub(super) async fn text(&self, at: &KeyReference) -> Result<String, ObjectError> {
        let found: ConfigMap = self.get(&at.namespace, &at.name).await?;
        let data = found.data.unwrap_or_default();
        take(data, &at.key, "data")
            .map_err(|problem| error("ConfigMap", &at.namespace, &at.name, problem))
    }

    /// The version of a `ConfigMap`: its uid and resourceVersion.
    pub(super) async fn version(&self, at: &KeyReference) -> Result<String, ObjectError> {
        let api = self.api::<ConfigMap>(&at.namespace, &at.name)?;
        let asked = timeout(PATIENCE, api.get_metadata(&at.name)).await;
        let found = answer(asked)
            .map_err(|problem| error("ConfigMap", &at.namespace, &at.name, problem))?;
        let ObjectMeta {
            uid,
            resource_version,
            ..
        } = found.metadata;
        let (uid, version) = (
            uid.unwrap_or_default(),
            resource_version.unwrap_or_default(),
        );
        Ok(format!("{uid}/{version}"))
    }

    /// The credentials that a Secret has for an artefact.
    pub(super) async fn credentials(
        &self,
        secret: &SecretReference,
        registry: &str,
        repository: &str,
    ) -> Result<Credentials, ObjectError> {
        let found: Secret = self.get(&secret.namespace, &secret.name).await?;
        Credentials::find(&found, registry, repository)
            .map_err(|problem| error("Secret", &secret.namespace, &secret.name, problem.into()))
    }

    async fn get<K>(&self, namespace: &str, name: &str) -> Result<K, ObjectError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: k8s_openapi::Resource + Clone + Debug + DeserializeOwned,
    {
        let api = self.api::<K>(namespace, name)?;
        let asked = timeout(PATIENCE, api.get(name)).await;
        answer(asked).map_err(|problem| error(K::KIND, namespace, name, problem))
    }

    fn api<K>(&self, namespace: &str, name: &str) -> Result<Api<K>, ObjectError>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + k8s_openapi::Resource,
    {
        match &self.0 {
            Some(client) => Ok(Api::namespaced(client.clone(), namespace)),
            None => Err(error(K::KIND, namespace, name, ObjectProblem::NoCluster)),
        }
    }
}

fn answer<T>(
    asked: Result<kube::Result<T>, tokio::time::error::Elapsed>,
) -> Result<T, ObjectProblem> {
    match asked {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(kube::Error::Api(status))) if status.is_not_found() => Err(ObjectProblem::Missing),
        Ok(Err(kube::Error::Api(status))) if status.is_forbidden() => Err(ObjectProblem::Forbidden),
        Ok(Err(error)) => Err(ObjectProblem::Unreadable(error.to_string())),
        Err(_) => Err(ObjectProblem::NoAnswer),
    }
}

fn binary_value(found: ConfigMap, key: &str) -> Result<Vec<u8>, ObjectProblem> {
    if found.data.is_some_and(|data| data.contains_key(key)) {
        return Err(ObjectProblem::Text(key.to_owned()));
    }
    let value = take(found.binary_data.unwrap_or_default(), key, "binaryData")?.0;
    if value.len() > MOST_BYTES {
        return Err(ObjectProblem::TooLarge {
            key: key.to_owned(),
            bytes: value.len(),
        });
    }
    Ok(value)
}

fn take<T>(
    mut data: BTreeMap<String, T>,
    key: &str,
    field: &'static str,
) -> Result<T, ObjectProblem> {
    data.remove(key).ok_or_else(|| ObjectProblem::NoKey {
        key: key.to_owned(),
        field,
        keys: data.into_keys().collect(),
    })
}

fn error(kind: &str, namespace: &str, name: &str, problem: ObjectProblem) -> ObjectError {
    ObjectError {
        object: format!("{kind} {namespace}/{name}"),
        problem,
    }
}

fn list(keys: &[String]) -> String {
    if keys.is_empty() {
        return "none".to_owned();
    }
    keys.join(", ")
}
