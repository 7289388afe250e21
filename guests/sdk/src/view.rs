//! What the code of `#[derive(View)]` uses. Authors use the macro.

use std::fmt;

pub use serde::de::{Deserialize, Deserializer, MapAccess};
use serde::de::{DeserializeSeed, Error, IgnoredAny, Visitor};

/// The fields that a view reads below one position of an object.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a view, so that it cannot be flattened",
    label = "only a struct with `#[derive(View)]` can be flattened"
)]
pub trait Level {
    /// Their names.
    const FIELDS: &'static [&'static str];

    /// Reads the value of the field at a position of [`Self::FIELDS`].
    fn read<'de, A: MapAccess<'de>>(
        &mut self,
        position: usize,
        entries: &mut A,
    ) -> Result<(), A::Error>;
}

/// Reads a level. What the object lacks stays as it is.
pub fn read<'de, D: Deserializer<'de>>(deserializer: D, level: impl Level) -> Result<(), D::Error> {
    At(level).deserialize(deserializer)
}

/// Reads a level.
pub struct At<L>(pub L);

impl<'de, L: Level> DeserializeSeed<'de> for At<L> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_struct("", L::FIELDS, self)
    }
}

impl<'de, L: Level> Visitor<'de> for At<L> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map")
    }

    /// Null is the same as an absent field in Kubernetes.
    fn visit_unit<E: Error>(self) -> Result<(), E> {
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut entries: A) -> Result<(), A::Error> {
        while let Some(position) = entries.next_key_seed(Position(L::FIELDS))? {
            match position {
                Some(position) => self.0.read(position, &mut entries)?,
                None => {
                    entries.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(())
    }
}

/// How many fields several views read of one place.
#[must_use]
pub const fn count(mut parts: &[&[&str]]) -> usize {
    let mut count = 0;
    while let Some((part, rest)) = parts.split_first() {
        count += part.len();
        parts = rest;
    }
    count
}

/// The fields that several views read of one place.
///
/// # Panics
///
/// If two views read the same field: the build ends, because this is called at compile time.
#[must_use]
#[allow(clippy::panic, reason = "an error at compile time")]
pub const fn joined<const N: usize>(mut parts: &[&[&'static str]]) -> [&'static str; N] {
    let mut joined = [""; N];
    let mut count = 0;
    while let Some((part, rest)) = parts.split_first() {
        parts = rest;
        let mut part = *part;
        while let Some((name, rest)) = part.split_first() {
            part = rest;
            let (known, free) = joined.split_at_mut(count);
            assert!(
                !has(known, name),
                "two fields of the view read the same field of the object"
            );
            if let Some(place) = free.first_mut() {
                *place = name;
            }
            count += 1;
        }
    }
    joined
}

const fn has(mut names: &[&str], name: &str) -> bool {
    while let Some((known, rest)) = names.split_first() {
        if is_same(known.as_bytes(), name.as_bytes()) {
            return true;
        }
        names = rest;
    }
    false
}

const fn is_same(mut one: &[u8], mut other: &[u8]) -> bool {
    while let (Some((first, rest)), Some((second, others))) =
        (one.split_first(), other.split_first())
    {
        if *first != *second {
            return false;
        }
        (one, other) = (rest, others);
    }
    one.is_empty() && other.is_empty()
}

/// Reads a field's name as its position in a list; none for another name.
struct Position(&'static [&'static str]);

impl<'de> DeserializeSeed<'de> for Position {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_bytes(self)
    }
}

impl Visitor<'_> for Position {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field's name")
    }

    fn visit_str<E: Error>(self, name: &str) -> Result<Self::Value, E> {
        self.visit_bytes(name.as_bytes())
    }

    fn visit_bytes<E: Error>(self, name: &[u8]) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|known| known.as_bytes() == name))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use crate::{Time, View, fields_of, msgpack};

    #[derive(Debug, PartialEq, View)]
    struct Deployment {
        #[view(path = "metadata.labels[\"app.kubernetes.io/name\"]")]
        app: String,
        #[view(path = "metadata.creationTimestamp")]
        created: Option<Time>,
        #[view(path = "metadata.annotations")]
        annotations: BTreeMap<String, String>,
        #[view(path = "spec.replicas")]
        replicas: i32,
        #[view(path = "spec.template.spec")]
        pods: PodSpec,
        #[view(rename = "status")]
        state: Option<Status>,
    }

    impl Default for Deployment {
        fn default() -> Self {
            Self {
                app: String::new(),
                created: None,
                annotations: BTreeMap::new(),
                replicas: 1,
                pods: PodSpec::default(),
                state: None,
            }
        }
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct PodSpec {
        containers: Vec<Container>,
        service_account_name: String,
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct Container {
        image: String,
        r#type: String,
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct Status {
        ready_replicas: i32,
    }

    fn read(object: &Value) -> Result<Deployment, String> {
        let bytes = msgpack::encode(object);
        msgpack::decode(&bytes).map_err(|error| error.to_string())
    }

    #[test]
    fn a_view_declares_the_paths_of_its_fields() {
        assert_eq!(
            fields_of::<Deployment>(),
            [
                "metadata.annotations",
                "metadata.creationTimestamp",
                "metadata.labels[\"app.kubernetes.io/name\"]",
                "spec.replicas",
                "spec.template.spec.containers[*].image",
                "spec.template.spec.containers[*].type",
                "spec.template.spec.serviceAccountName",
                "status.readyReplicas",
            ]
        );
    }

    #[test]
    fn a_view_reads_its_fields() {
        let object = json!({
            "metadata": {
                "name": "web",
                "labels": {"app.kubernetes.io/name": "shop", "other": "x"},
                "creationTimestamp": "1970-01-01T00:00:05Z",
                "annotations": {"a": "b"},
            },
            "spec": {"replicas": 3, "template": {"spec": {
                "containers": [{"image": "one", "type": "x"}, {"ports": [1]}],
                "serviceAccountName": "web",
            }}},
            "status": {"readyReplicas": 2, "replicas": 3},
        });
        let container = |image: &str, r#type: &str| Container {
            image: image.to_owned(),
            r#type: r#type.to_owned(),
        };
        let expected = Deployment {
            app: "shop".to_owned(),
            created: Time::parse("1970-01-01T00:00:05Z"),
            annotations: BTreeMap::from([("a".to_owned(), "b".to_owned())]),
            replicas: 3,
            pods: PodSpec {
                containers: vec![container("one", "x"), container("", "")],
                service_account_name: "web".to_owned(),
            },
            state: Some(Status { ready_replicas: 2 }),
        };
        assert_eq!(read(&object), Ok(expected));
    }

    #[test]
    fn an_absent_or_null_field_has_the_default_of_the_struct() {
        for object in [
            json!({}),
            json!({"metadata": null, "spec": null, "status": null}),
            json!({"metadata": {"labels": null}, "spec": {"replicas": null, "template": {}}}),
        ] {
            assert_eq!(read(&object), Ok(Deployment::default()), "{object}");
        }
    }

    /// Two views of the metadata, a field of it, and another view of the same object.
    #[derive(Debug, Default, PartialEq, View)]
    struct Site {
        #[view(path = "metadata", flatten)]
        labels: Labels,
        #[view(path = "metadata.generation")]
        generation: i64,
        #[view(path = "metadata", flatten)]
        times: Times,
        #[view(flatten)]
        page: Page,
        kind: String,
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct Labels {
        labels: BTreeMap<String, String>,
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct Times {
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
    }

    #[derive(Debug, Default, PartialEq, View)]
    struct Page {
        #[view(path = "spec.html")]
        html: String,
        #[view(path = "spec.title")]
        title: String,
    }

    #[test]
    fn flattened_views_are_read_beside_each_other() {
        assert_eq!(
            fields_of::<Site>(),
            [
                "kind",
                "metadata.creationTimestamp",
                "metadata.deletionTimestamp",
                "metadata.generation",
                "metadata.labels",
                "spec.html",
                "spec.title",
            ]
        );
        let object = json!({
            "kind": "Site",
            "metadata": {
                "name": "a",
                "deletionTimestamp": "1970-01-01T00:00:07Z",
                "labels": {"app": "shop"},
                "creationTimestamp": "1970-01-01T00:00:05Z",
                "generation": 3,
            },
            "spec": {"title": "A", "html": "<h1>"},
        });
        let site: Site = msgpack::decode(&msgpack::encode(&object)).unwrap();
        let expected = Site {
            labels: Labels {
                labels: BTreeMap::from([("app".to_owned(), "shop".to_owned())]),
            },
            generation: 3,
            times: Times {
                creation_timestamp: Time::parse("1970-01-01T00:00:05Z"),
                deletion_timestamp: Time::parse("1970-01-01T00:00:07Z"),
            },
            page: Page {
                html: "<h1>".to_owned(),
                title: "A".to_owned(),
            },
            kind: "Site".to_owned(),
        };
        assert_eq!(site, expected);
        let empty: Site = msgpack::decode(&msgpack::encode(&json!({"metadata": null}))).unwrap();
        assert_eq!(empty, Site::default());
    }

    #[test]
    #[should_panic(expected = "two fields of the view read the same field of the object")]
    fn two_flattened_views_do_not_read_the_same_field() {
        let _ = super::joined::<3>(&[&["kind", "labels"], &["labels"]]);
    }

    #[test]
    fn fields_of_which_one_starts_like_another_are_not_the_same() {
        let joined = super::joined::<4>(&[&["a"], &[], &["ab", "b"], &["c"]]);
        assert_eq!(joined, ["a", "ab", "b", "c"]);
    }

    #[test]
    fn an_error_names_the_path_in_the_object() {
        let object = json!({"spec": {"template": {"spec": {"containers": [{"image": 1}]}}}});
        assert_eq!(
            read(&object).unwrap_err(),
            "spec.template.spec.containers[0].image: expected text, found 1"
        );
        let object = json!({"metadata": {"labels": []}});
        assert_eq!(
            read(&object).unwrap_err(),
            "metadata.labels: expected a map, found a list"
        );
    }
}
