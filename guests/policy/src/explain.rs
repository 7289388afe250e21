//! Explains what the rules would do, with the guest's own judging: for `davit policy test`.

pub use davit_guest::bindings::davit::controller as contract;
pub use davit_guest::component::Host;
pub use davit_guest::{ConfigError, Manifest};

pub use crate::cel::reads::Reads;
pub use crate::cel::schema::Published;

use std::collections::BTreeMap;

use davit_guest::{Controller as _, component};

use crate::Policy;
use crate::cel::schema::Schema;
use crate::cel::{Expression, OBJECT, Scope, Type, reads, text};
use crate::explanation::{Explanation, RuleMatch};

/// The guest with a configuration, outside of a component.
#[derive(Debug)]
pub struct Explainer {
    policy: Policy,
    manifest: Manifest,
}

impl Explainer {
    /// Reads a configuration (MessagePack), and refuses it as the guest does.
    pub fn new(config: &[u8]) -> Result<Self, ConfigError> {
        let policy: Policy = component::configured(config)?;
        let manifest = policy.manifest();
        Ok(Self { policy, manifest })
    }

    /// What the rules need: the watches, the permissions.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The objects that the rules are about, by rule.
    #[must_use]
    pub fn rules(&self) -> Vec<RuleMatch> {
        self.policy.matches()
    }

    /// What the rules would do at a time (milliseconds since the epoch) with the objects that a
    /// host has for the watches of the manifest.
    #[must_use]
    pub fn explain(&self, host: &dyn Host, now: i64) -> Explanation {
        component::observe(host, now, |cx| self.policy.explain(cx))
    }
}

/// Reads a configuration (MessagePack), and refuses it as the guest does, and if it names fields
/// that objects do not have as far as an API server publishes them. The guest alone knows only
/// Kubernetes' own kinds.
pub fn check(config: &[u8], published: &Published) -> Result<(), ConfigError> {
    let config = component::read_config::<Policy>(config)?;
    crate::rule::compile(&config, published).map(|_| ())
}

/// The type of the values of a field, as far as the kinds of Kubernetes are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldType {
    /// Nothing is known of it.
    Unknown,
    /// A boolean.
    Bool,
    /// A number.
    Number,
    /// A text.
    Text,
    /// A time.
    Time,
    /// A list.
    List,
    /// A map or an object, or anything else.
    Other,
}

/// The type of a field (`object.status.phase`) of the objects of a resource; an error, in the
/// words of the guest, if they do not have it.
pub fn field_type(resource: &str, field: &str) -> Result<FieldType, String> {
    let resource = crate::resource::parse(resource)?;
    let variables = BTreeMap::new();
    let scope = Scope {
        bindings: BTreeMap::from([(OBJECT, Schema::of(&resource))]),
        variables: &variables,
    };
    let expression = Expression::compile(field, &scope).map_err(|it| it.to_string())?;
    Ok(match expression.result {
        Type::Any => FieldType::Unknown,
        Type::Bool => FieldType::Bool,
        Type::Number => FieldType::Number,
        Type::Text => FieldType::Text,
        Type::Time => FieldType::Time,
        Type::List => FieldType::List,
        _ => FieldType::Other,
    })
}

/// What an expression reads, with the variables that it names (`variables.NAME`); an error if it
/// is none.
pub fn reads_of(expression: &str, variables: &BTreeMap<String, String>) -> Result<Reads, String> {
    let mut parsed = BTreeMap::new();
    for (name, source) in variables {
        let variable = text::parse(source);
        let variable = variable.map_err(|mistake| format!("the variable {name}: {mistake}"))?;
        parsed.insert(name.clone(), variable);
    }
    reads::of(expression, &parsed).map_err(|mistake| mistake.to_string())
}
