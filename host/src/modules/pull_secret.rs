//! Credentials for a registry from a Secret, chosen as the kubelet chooses
//! them.
//!
//! A docker configuration names registries, and may name repositories below
//! them: `registry.example.com/team`. Parts of a host may hold `*`, as in
//! `*.example.com`. The most specific name that matches applies; see
//! "Interpretation of config.json" in Kubernetes' documentation of images.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;

/// A user and a password.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Credentials {
    pub(super) username: String,
    pub(super) password: String,
}

/// Why a Secret has no credentials. No error contains its values.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The Secret has another type.
    #[error(
        "its type is \"{0}\"; credentials for a registry are of type \
         kubernetes.io/dockerconfigjson, kubernetes.io/dockercfg or kubernetes.io/basic-auth"
    )]
    Type(String),
    /// A key is missing.
    #[error("it has no key \"{0}\"")]
    NoKey(&'static str),
    /// A value does not have the form of its type.
    #[error("its key \"{key}\" is not a {form}")]
    Malformed {
        /// The key.
        key: &'static str,
        /// The expected form.
        form: &'static str,
    },
    /// It is for other registries.
    #[error("it has no credentials for {registry}; it has some for: {}", known.join(", "))]
    OtherRegistry {
        /// The registry.
        registry: String,
        /// The registries in the Secret.
        known: Vec<String>,
    },
    /// The matching entry has no user and password.
    #[error(
        "its entry \"{0}\" has neither username and password nor auth, the two in base64 with a \
         colon between them"
    )]
    NoPassword(String),
}

impl Credentials {
    /// The credentials that a Secret has for a repository of a registry.
    pub(super) fn find(
        secret: &Secret,
        registry: &str,
        repository: &str,
    ) -> Result<Self, SecretError> {
        const CONFIG_JSON: &str = ".dockerconfigjson";
        const CONFIG: &str = ".dockercfg";
        let entries = match secret.type_.as_deref().unwrap_or("Opaque") {
            "kubernetes.io/basic-auth" => {
                return Ok(Self {
                    username: text(secret, "username")?,
                    password: text(secret, "password")?,
                });
            }
            "kubernetes.io/dockerconfigjson" => {
                let file: DockerConfig = json(secret, CONFIG_JSON)?;
                file.auths
            }
            "kubernetes.io/dockercfg" => json(secret, CONFIG)?,
            other => return Err(SecretError::Type(other.to_owned())),
        };
        choose(entries, registry, repository)
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials")
            .field("username", &self.username)
            .finish_non_exhaustive()
    }
}

#[derive(Deserialize)]
struct DockerConfig {
    auths: BTreeMap<String, Entry>,
}

/// The entry of one registry.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entry {
    username: String,
    password: String,
    /// `username:password`, which `docker login` writes instead.
    auth: Option<ByteString>,
}

impl Entry {
    fn credentials(self) -> Option<Credentials> {
        if let Some(ByteString(auth)) = self.auth.filter(|auth| !auth.0.is_empty()) {
            let auth = String::from_utf8(auth).ok()?;
            let (username, password) = auth.split_once(':')?;
            return Some(Credentials {
                username: username.to_owned(),
                password: password.to_owned(),
            });
        }
        let Self {
            username, password, ..
        } = self;
        (!username.is_empty()).then_some(Credentials { username, password })
    }
}

fn choose(
    entries: BTreeMap<String, Entry>,
    registry: &str,
    repository: &str,
) -> Result<Credentials, SecretError> {
    let known: Vec<String> = entries.keys().cloned().collect();
    // Docker Hub is known by the address of its former index.
    let hub = registry == "docker.io";
    let fits = |pattern: &Pattern| {
        pattern.fits(registry, repository) || hub && pattern.fits("index.docker.io", repository)
    };
    let patterns = entries
        .into_iter()
        .map(|(name, entry)| (Pattern::new(&name), name, entry));
    let best = patterns
        .filter(|(pattern, ..)| fits(pattern))
        // In this order the more specific of two matching names comes last, as in the
        // kubelet: a star sorts before every letter, and a prefix before longer names.
        .max_by(|(one, ..), (other, ..)| one.cmp(other));
    match best {
        Some((_, name, entry)) => entry.credentials().ok_or(SecretError::NoPassword(name)),
        None => Err(SecretError::OtherRegistry {
            registry: registry.to_owned(),
            known,
        }),
    }
}

/// A registry's name in a docker configuration, without optional parts:
/// `https://registry.example.com/v1/` is `registry.example.com`.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Pattern {
    host: String,
    path: String,
}

impl Pattern {
    fn new(name: &str) -> Self {
        let plain = name.strip_prefix("https://");
        let plain = plain.or_else(|| name.strip_prefix("http://"));
        let plain = plain.unwrap_or(name);
        let (host, path) = plain.split_once('/').unwrap_or((plain, ""));
        let version = path.strip_prefix("v1/").or(path.strip_prefix("v2/"));
        Self {
            host: host.to_owned(),
            path: version.unwrap_or(path).to_owned(),
        }
    }

    fn fits(&self, registry: &str, repository: &str) -> bool {
        let (pattern, pattern_port) = split_port(&self.host);
        let (host, port) = split_port(registry);
        let parts = || pattern.split('.').zip(host.split('.'));
        pattern_port == port
            && pattern.split('.').count() == host.split('.').count()
            && parts().all(|(pattern, part)| part_fits(pattern, part))
            && repository.starts_with(&self.path)
    }
}

fn split_port(host: &str) -> (&str, &str) {
    host.rsplit_once(':').unwrap_or((host, ""))
}

/// Whether one part of a host fits a pattern with any number of stars.
fn part_fits(pattern: &str, part: &str) -> bool {
    let Some((start, rest)) = pattern.split_once('*') else {
        return pattern == part;
    };
    let Some(part) = part.strip_prefix(start) else {
        return false;
    };
    part.char_indices()
        .map(|(at, _)| at)
        .chain([part.len()])
        .any(|at| part.get(at..).is_some_and(|left| part_fits(rest, left)))
}

fn bytes<'a>(secret: &'a Secret, key: &'static str) -> Result<&'a [u8], SecretError> {
    let found = secret.data.as_ref().and_then(|data| data.get(key));
    let found = found.ok_or(SecretError::NoKey(key))?;
    Ok(&found.0)
}

fn text(secret: &Secret, key: &'static str) -> Result<String, SecretError> {
    let text = String::from_utf8(bytes(secret, key)?.to_vec());
    text.map_err(|_| SecretError::Malformed {
        key,
        form: "text value",
    })
}

fn json<T: serde::de::DeserializeOwned>(
    secret: &Secret,
    key: &'static str,
) -> Result<T, SecretError> {
    // serde's error could quote a password.
    serde_json::from_slice(bytes(secret, key)?).map_err(|_| SecretError::Malformed {
        key,
        form: "docker configuration",
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn secret(kind: &str, key: &str, value: &Value) -> Secret {
        let value = ByteString(value.to_string().into_bytes());
        Secret {
            type_: Some(kind.to_owned()),
            data: Some(BTreeMap::from([(key.to_owned(), value)])),
            ..Secret::default()
        }
    }

    fn docker(auths: &Value) -> Secret {
        let kind = "kubernetes.io/dockerconfigjson";
        secret(kind, ".dockerconfigjson", &json!({"auths": auths}))
    }

    fn user(secret: &Secret, registry: &str, repository: &str) -> Result<String, String> {
        let found = Credentials::find(secret, registry, repository);
        found
            .map(|found| format!("{}:{}", found.username, found.password))
            .map_err(|error| error.to_string())
    }

    #[test]
    fn every_way_of_writing_a_password_is_read() {
        let pair = docker(&json!({"r.io": {"username": "me", "password": "pa:ss"}}));
        assert_eq!(user(&pair, "r.io", "a").unwrap(), "me:pa:ss");
        let auth = docker(&json!({"r.io": {"auth": "bWU6cGE6c3M="}}));
        assert_eq!(user(&auth, "r.io", "a").unwrap(), "me:pa:ss");
        let entry = json!({"r.io": {"auth": "bWU6cGE6c3M="}});
        let legacy = secret("kubernetes.io/dockercfg", ".dockercfg", &entry);
        assert_eq!(user(&legacy, "r.io", "a").unwrap(), "me:pa:ss");
        let pair = [("username", "me"), ("password", "pass")];
        let pair = pair.map(|(key, text)| (key.to_owned(), ByteString(text.into())));
        let basic = Secret {
            type_: Some("kubernetes.io/basic-auth".into()),
            data: Some(pair.into()),
            ..Secret::default()
        };
        assert_eq!(user(&basic, "any.io:5000", "a").unwrap(), "me:pass");
    }

    /// The cases of Kubernetes' documentation, and some more.
    #[test]
    fn names_fit_as_the_kubelet_has_it() {
        let cases = [
            ("*.k8s.io", "abc.k8s.io", true),
            ("k8s.*", "k8s.io", true),
            ("app*.k8s.io", "application.k8s.io", true),
            ("*.k8s.io", "abc.sub.k8s.io", false),
            ("*.k8s.io", "k8s.io", false),
            ("k8s.io", "sub.k8s.io", false),
            ("k8s.io/team", "k8s.io", true),
            ("k8s.io/other", "k8s.io", false),
            ("http://k8s.io:5000/v2/", "k8s.io:5000", true),
            ("https://k8s.io/v1/", "k8s.io", true),
            ("k8s.io", "k8s.io:5000", false),
            ("k8s.io:5000", "k8s.io", false),
            ("a*c*.io", "abcd.io", true),
            ("a*c*x.io", "abcd.io", false),
        ];
        for (name, registry, expected) in cases {
            let found = Pattern::new(name).fits(registry, "team/app");
            assert_eq!(found, expected, "{name} for {registry}");
        }
    }

    #[test]
    fn the_most_specific_entry_has_its_way() {
        let entry = |name: &str| json!({"username": name, "password": "p"});
        let secret = docker(&json!({
            "*.example.com": entry("star"),
            "r.example.com": entry("host"),
            "r.example.com/team": entry("team"),
            "https://index.docker.io/v1/": entry("hub"),
        }));
        let user = |registry, repository| user(&secret, registry, repository).unwrap();
        assert_eq!(user("s.example.com", "team/a"), "star:p");
        assert_eq!(user("r.example.com", "other/a"), "host:p");
        assert_eq!(user("r.example.com", "team/a"), "team:p");
        assert_eq!(user("docker.io", "library/a"), "hub:p");
    }

    #[test]
    fn errors_name_registries_and_keys_but_no_password() {
        let one = docker(&json!({"r.io": {"username": "me", "password": "secret"}}));
        let error = user(&one, "s.io", "a").unwrap_err();
        assert_eq!(
            error,
            "it has no credentials for s.io; it has some for: r.io"
        );
        let empty = docker(&json!({"r.io": {"email": "a@b"}}));
        assert!(
            user(&empty, "r.io", "a")
                .unwrap_err()
                .contains("\"r.io\" has neither")
        );
        let opaque = secret("Opaque", "x", &json!("secret"));
        assert!(
            user(&opaque, "r.io", "a")
                .unwrap_err()
                .contains("its type is \"Opaque\"")
        );
        let kind = "kubernetes.io/dockerconfigjson";
        let torn = secret(kind, ".dockerconfigjson", &json!({"auths": "secret"}));
        let error = user(&torn, "r.io", "a").unwrap_err();
        assert_eq!(
            error,
            "its key \".dockerconfigjson\" is not a docker configuration"
        );
        let misnamed = secret(kind, "config.json", &json!({}));
        assert!(
            user(&misnamed, "r.io", "a")
                .unwrap_err()
                .contains(".dockerconfigjson")
        );
    }
}
