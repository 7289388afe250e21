//! The operator's configuration: the rules.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use davit_guest::{LabelSelector, dynamic};
use serde::de::Visitor;
use serde::{Deserialize, Deserializer};

/// The rules, and what they count.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// In their order: the first rule that acts on an object is the one that does.
    #[cfg_attr(test, schemars(length(min = 1, max = 100)))]
    pub rules: Vec<RuleConfig>,
    /// Numbers of objects, as `counts.NAME` in the expression `hold` of a rule.
    pub counts: BTreeMap<String, CountConfig>,
    /// How often an object is judged again that a rule has acted on, that a rule holds, or
    /// whose rule reads the time in a way that is no comparison with `now`.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(with = "davit_guest::duration")]
    pub every: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            counts: BTreeMap::new(),
            every: Duration::from_secs(60),
        }
    }
}

/// One rule: which objects, when, and what is done with them.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct RuleConfig {
    /// A short word: the reason of the plans, in metrics and logs.
    #[cfg_attr(test, schemars(regex(pattern = "^[a-z0-9-]{1,63}$")))]
    pub name: String,
    /// Which objects.
    #[serde(rename = "match")]
    pub matches: MatchConfig,
    /// Expressions by name: `variables.NAME` stands for one.
    pub variables: BTreeMap<String, String>,
    /// Other objects that the rule reads, by name.
    pub related: BTreeMap<String, RelatedConfig>,
    /// A boolean expression: whether the rule acts on an object.
    #[cfg_attr(test, schemars(extend("type" = ["string", "boolean"])))]
    #[serde(deserialize_with = "condition")]
    pub when: String,
    /// A boolean expression: the objects that it spares after all.
    #[cfg_attr(test, schemars(extend("type" = ["string", "boolean"])))]
    #[serde(deserialize_with = "condition")]
    pub unless: String,
    /// How many of those objects it spares.
    pub keep: Option<KeepConfig>,
    /// A boolean expression over `counts` and `now`: while it is true, the rule waits.
    #[cfg_attr(test, schemars(extend("type" = ["string", "boolean"])))]
    #[serde(deserialize_with = "condition")]
    pub hold: String,
    /// What is done.
    #[serde(rename = "do")]
    pub actions: ActionsConfig,
    /// What has to agree before the rule acts: the cache, or the API server. By default `live`
    /// for a rule that deletes or evicts and reads other objects, else `cache`. What `keep` spares
    /// is read from the API server by default too, before others are deleted or evicted.
    pub proof: Option<Proof>,
    /// A sentence for an operator, with `${expression}` in it; by default what `when` says.
    pub message: String,
}

/// What has to agree before a rule acts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Proof {
    /// The cache. The object's version is a precondition of its deletion, but what is related
    /// to it may be newer.
    Cache,
    /// The object, its namespace, what is related to it and what `keep` spares, read from the API
    /// server.
    Live,
}

/// Which objects a rule is about.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct MatchConfig {
    /// `pods`, `jobs.batch`, `widgets.v1.example.com`.
    pub resource: String,
    /// Their namespaces; all of them by default.
    pub namespaces: Vec<String>,
    /// The labels of their namespaces.
    #[cfg_attr(test, schemars(with = "Option<tests::Selector>"))]
    pub namespace_selector: Option<LabelSelector>,
    /// As kubectl's `--selector`.
    pub label_selector: String,
    /// As kubectl's `--field-selector`.
    pub field_selector: String,
}

/// Other objects that a rule reads.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct RelatedConfig {
    /// Their resource.
    pub resource: String,
    /// The path of a text, a number or a boolean of theirs; without it, the owner that controls the
    /// object.
    pub by: String,
    /// What that field has to be: a field of the object. They are in the object's namespace, if
    /// both have one.
    pub is: String,
}

/// How many of the objects that a rule selects it spares.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct KeepConfig {
    /// Spares this many of the newest.
    pub newest: Option<u32>,
    /// Spares this many of the oldest.
    pub oldest: Option<u32>,
    /// Does nothing until there are more than this many; then as many as above are spared.
    pub above: Option<u32>,
    /// `namespace`, `owner`, `node`, or the path of a field: as many of each. A field counts in
    /// each namespace by itself.
    pub per: String,
    /// The time by which they are ordered; the creation by default.
    pub by: String,
}

/// What is done with an object. Changes come first, then the event, then its end.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct ActionsConfig {
    /// Deletes it.
    pub delete: Option<DeleteConfig>,
    /// Evicts it, so that disruption budgets hold.
    pub evict: Option<EvictConfig>,
    /// Sets labels; null removes one.
    pub label: BTreeMap<String, Option<String>>,
    /// Sets annotations; null removes one.
    pub annotate: BTreeMap<String, Option<String>>,
    /// Taints a node.
    pub taint: Option<TaintConfig>,
    /// Takes taints away from a node.
    pub untaint: Option<UntaintConfig>,
    /// A JSON merge patch (RFC 7396).
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub merge_patch: dynamic::Value,
    /// A JSON patch (RFC 6902).
    pub json_patch: Vec<PatchConfig>,
    /// Records an event.
    pub event: Option<EventConfig>,
}

/// How an object is deleted.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct DeleteConfig {
    /// Seconds; the object's own by default.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub grace_period_seconds: Option<i64>,
    /// `Background`, `Foreground` or `Orphan`; the kind's own by default.
    #[cfg_attr(test, schemars(extend("enum" = ["", "Background", "Foreground", "Orphan"])))]
    pub propagation_policy: String,
}

/// How a pod is evicted.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct EvictConfig {
    /// Seconds; the pod's own by default.
    #[cfg_attr(test, schemars(range(min = 0)))]
    pub grace_period_seconds: Option<i64>,
    /// Deletes the pod if its budget refuses so long after its first refusal; never by default.
    #[cfg_attr(
        test,
        schemars(with = "String", extend("pattern" = davit_guest::duration::PATTERN))
    )]
    #[serde(deserialize_with = "some_duration")]
    pub then_delete_after: Option<Duration>,
}

/// What is written is a duration; only what is left out is none.
fn some_duration<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    davit_guest::duration::deserialize(deserializer).map(Some)
}

/// A taint of a node.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct TaintConfig {
    /// Its key.
    pub key: String,
    /// Its value.
    pub value: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[cfg_attr(test, schemars(extend("enum" = ["NoSchedule", "PreferNoSchedule", "NoExecute"])))]
    pub effect: String,
}

/// Taints that a node loses.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct UntaintConfig {
    /// Their key.
    pub key: String,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`; each of them by default.
    #[cfg_attr(
        test,
        schemars(extend("enum" = ["", "NoSchedule", "PreferNoSchedule", "NoExecute"]))
    )]
    pub effect: String,
}

/// One operation of a JSON patch.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct PatchConfig {
    /// `add`, `replace`, `remove` or `test`.
    #[cfg_attr(test, schemars(extend("enum" = ["add", "replace", "remove", "test"])))]
    pub op: String,
    /// A JSON pointer.
    pub path: String,
    /// The value, with `${expression}` in its texts.
    #[cfg_attr(test, schemars(with = "serde_json::Value"))]
    pub value: dynamic::Value,
}

/// An event.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct EventConfig {
    /// `Normal`, by default, or `Warning`.
    #[serde(rename = "type")]
    #[cfg_attr(test, schemars(extend("enum" = ["", "Normal", "Warning"])))]
    pub event_type: String,
    /// A word such as `CleanedUp`.
    pub reason: String,
    /// A sentence, with `${expression}` in it.
    pub message: String,
}

/// A number of objects.
#[derive(Clone, Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct CountConfig {
    /// Their resource.
    pub resource: String,
    /// As kubectl's `--selector`.
    pub label_selector: String,
    /// A boolean expression; all of them by default.
    #[cfg_attr(test, schemars(extend("type" = ["string", "boolean"])))]
    #[serde(deserialize_with = "condition")]
    pub when: String,
}

/// A boolean expression. YAML makes a boolean of `true` and `false` without quotes.
fn condition<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    struct Condition;

    impl Visitor<'_> for Condition {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("text")
        }

        fn visit_bool<E>(self, value: bool) -> Result<String, E> {
            Ok(value.to_string())
        }

        fn visit_str<E>(self, text: &str) -> Result<String, E> {
            Ok(text.to_owned())
        }
    }

    deserializer.deserialize_any(Condition)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A label selector.
    #[derive(schemars::JsonSchema)]
    #[schemars(deny_unknown_fields, rename_all = "camelCase")]
    #[allow(dead_code, reason = "it describes a type of the SDK")]
    pub(super) struct Selector {
        /// The labels that have to be set.
        #[schemars(default)]
        match_labels: BTreeMap<String, String>,
        /// Requirements that have to hold.
        #[schemars(default)]
        match_expressions: Vec<Requirement>,
    }

    /// A requirement of a label.
    #[derive(schemars::JsonSchema)]
    #[schemars(deny_unknown_fields)]
    #[allow(dead_code, reason = "it describes a type of the SDK")]
    struct Requirement {
        /// The label.
        key: String,
        /// How it is compared.
        #[schemars(extend("enum" = ["In", "NotIn", "Exists", "DoesNotExist"]))]
        operator: String,
        /// With these.
        #[schemars(default)]
        values: Vec<String>,
    }

    #[test]
    fn config_schema_is_current() {
        davit_guest::testing::assert_config_schema_is_current::<Config>(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_PKG_NAME"),
        );
    }
}
