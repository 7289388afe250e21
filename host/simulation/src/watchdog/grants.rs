//! What an operator lets a controller read and write.

use davit_core::api::ControllerSpec;
use davit_core::grant::{Permissions, ReadRule};
use davit_core::manifest::{Manifest, Source};
use davit_core::object::ObjectRef;
use davit_core::plan::{Plan, Step};

/// The grant in force, after the grants that may still have effects.
#[derive(Debug, Default)]
pub(super) struct Grants(Vec<Grant>);

/// The rules of a spec; none if a guest may do what it declares.
type Grant = Option<Permissions>;

impl Grants {
    /// The host receives this spec. A guest that does not ship with Davit may do what it
    /// declares only in a configuration file.
    pub(super) fn specify(&mut self, spec: &ControllerSpec, is_of_file: bool) {
        let is_trusted = is_of_file || spec.module.source.is_builtin();
        let grant = match &spec.permissions {
            None if is_trusted => None,
            rules => Some(rules.clone().unwrap_or_default()),
        };
        if self.0.last() != Some(&grant) {
            self.0.push(grant);
        }
    }

    /// Only the last grant has effects from now on.
    pub(super) fn settle(&mut self) {
        let former = self.0.len().saturating_sub(1);
        self.0.drain(..former);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// What a guest declares that no operator grants.
    pub(super) fn exceeded(&self, manifest: &Manifest) -> Option<String> {
        let lacks = |grant: &Grant| grant.as_ref().and_then(|rules| lacking(rules, manifest));
        let all: Vec<Option<String>> = self.0.iter().map(lacks).collect();
        let is_granted = all.iter().any(Option::is_none);
        if is_granted {
            None
        } else {
            all.into_iter().flatten().next()
        }
    }

    /// The write of a plan that no operator grants.
    pub(super) fn forbidden(&self, plan: &Plan) -> Option<String> {
        let mut writes = plan
            .steps
            .iter()
            .flat_map(|step| writes(step, &plan.target));
        writes
            .find(|write| !self.0.iter().any(|grant| write.is_granted(grant.as_ref())))
            .map(|Write { verb, object, .. }| format!("{verb} {object}"))
    }
}

/// The first watch or permission that the rules lack.
fn lacking(rules: &Permissions, manifest: &Manifest) -> Option<String> {
    let covers = |rule: &ReadRule, group: &str, resource: &str| {
        is(&rule.group, group) && is(&rule.resource, resource)
    };
    let granted = |rule: &ReadRule| rule.fields.iter().map(ToString::to_string).collect();
    let granted: Vec<Vec<String>> = rules.reads.iter().map(granted).collect();
    let watch = manifest.watches.iter().find(|watch| {
        let (group, resource) = match &watch.source {
            Source::One(one) => (one.group.as_str(), one.plural.as_str()),
            Source::EveryDeletable(_) => ("*", "*"),
        };
        let mut fields = watch.fields.iter().map(ToString::to_string);
        !fields.all(|field| {
            rules.reads.iter().zip(&granted).any(|(rule, granted)| {
                let mut granted = granted.iter();
                covers(rule, group, resource)
                    && rule.namespaces.is_empty()
                    && (rule.fields.is_empty() || granted.any(|one| field.starts_with(one)))
            })
        })
    });
    let asked = manifest.permissions.iter().find(|asked| {
        let (group, resource) = (asked.group.as_str(), asked.resource.as_str());
        if matches!(asked.verb.as_str(), "get" | "list") {
            return !rules.reads.iter().any(|rule| covers(rule, group, resource));
        }
        !rules.writes.iter().any(|rule| {
            rule.verb == asked.verb && is(&rule.group, group) && is(&rule.resource, resource)
        })
    });
    let watch = watch.map(|watch| format!("the watch {}", watch.name));
    watch.or_else(|| asked.map(ToString::to_string))
}

fn is(rule: &str, value: &str) -> bool {
    rule == "*" || rule == value
}

/// A write of a plan.
struct Write<'a> {
    verb: &'static str,
    object: &'a ObjectRef,
    subresource: &'a str,
}

fn writes<'a>(step: &'a Step, target: &'a ObjectRef) -> impl Iterator<Item = Write<'a>> {
    let creates = match step {
        Step::Apply(apply) if apply.may_create() => Some(Write {
            verb: "create",
            object: &apply.object,
            subresource: "",
        }),
        _ => None,
    };
    write(step, target).into_iter().chain(creates)
}

fn write<'a>(step: &'a Step, target: &'a ObjectRef) -> Option<Write<'a>> {
    let (verb, object, subresource) = match step {
        Step::Event(_) => return None,
        Step::Patch(patch) => ("patch", target, patch.subresource.as_str()),
        Step::Delete(_) => ("delete", target, ""),
        Step::Evict(_) => ("create", target, "eviction"),
        Step::Create(create) => ("create", &create.object, ""),
        Step::Apply(apply) => ("patch", &apply.object, apply.subresource.as_str()),
    };
    Some(Write {
        verb,
        object,
        subresource,
    })
}

impl Write<'_> {
    fn is_granted(&self, grant: Option<&Permissions>) -> bool {
        let Some(rules) = grant else {
            return true;
        };
        let object = self.object;
        let (group, _) = object.api_version.split_once('/').unwrap_or(("", ""));
        // So are the plurals of every kind in a story.
        let mut resource = object.kind.to_lowercase() + "s";
        if !self.subresource.is_empty() {
            resource = format!("{resource}/{}", self.subresource);
        }
        rules.writes.iter().any(|rule| {
            rule.verb == self.verb
                && is(&rule.group, group)
                && is(&rule.resource, &resource)
                && (rule.namespaces.is_empty() || rule.namespaces.contains(&object.namespace))
        })
    }
}
