//! Gives each namespace without the label `team` a default one.

use davit_guest::{
    ConfigError, Context, Controller, Decision, Manifest, Patch, Plan, QueueName, QueueSpec,
    Reason, Retry, Trigger, View, Watch, WatchName, WorkItem, resources, value,
};
use serde::Deserialize;

const NAMESPACES: WatchName<Namespace> = WatchName::new("namespaces");
/// The queue of the namespaces that have changed. The key of an item is a name.
const CHANGED: QueueName = QueueName::new("changed-namespaces");
/// Why a namespace is patched.
const NO_TEAM: Reason = Reason::new("no-team");

/// What an operator can configure.
#[derive(Clone, Debug, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema), schemars(deny_unknown_fields))]
#[serde(default, rename_all = "camelCase")]
pub struct Config {
    /// The label `team` of a namespace that has none.
    pub team: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            team: "unassigned".to_owned(),
        }
    }
}

/// The field that the guest reads of a namespace. An update outside of it triggers no
/// reconcile.
#[derive(Debug, Default, View)]
struct Namespace {
    #[view(path = "metadata.labels[\"team\"]")]
    team: Option<String>,
}

/// The policy.
#[derive(Debug)]
pub struct Policy {
    config: Config,
}

davit_guest::export!(Policy);

impl Controller for Policy {
    type Config = Config;

    fn new(config: Config) -> Result<Self, ConfigError> {
        if config.team.is_empty() {
            return Err(ConfigError::new("team", "it must not be empty"));
        }
        Ok(Self { config })
    }

    fn manifest(&self) -> Manifest {
        let summary = "Gives each namespace without the label team a default one.";
        Manifest::new(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), summary)
            .watch(Watch::of(NAMESPACES, resources::NAMESPACES))
            .trigger(Trigger::own_key(NAMESPACES, CHANGED))
            .queue(QueueSpec::new(CHANGED))
            .patches(resources::NAMESPACES)
            .config_schema(include_str!("../config.schema.json"))
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        // The item names a namespace, not what has happened to it: it may be gone.
        let namespace = cx.watch(NAMESPACES).get(&item.key);
        let without = namespace.filter(|namespace| namespace.view.team.is_none());
        let plan = without.map(|namespace| {
            // With its version, the patch fails if the namespace has changed meanwhile: it may
            // have the label by now.
            let label = value!({"metadata": {
                "resourceVersion": (&namespace.resource_version),
                "labels": {"team": (&self.config.team)},
            }});
            let message = "the namespace has no label team";
            Plan::new(namespace.reference, NO_TEAM, message).patch(Patch::merge(&label))
        });
        Ok(Decision::done().plans(plan))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_schema_is_current() {
        davit_guest::testing::assert_config_schema_is_current::<Config>(
            env!("CARGO_MANIFEST_DIR"),
            env!("CARGO_PKG_NAME"),
        );
    }
}
