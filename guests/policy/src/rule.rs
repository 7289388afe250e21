//! Rules, compiled from the configuration.

mod clause;

pub(crate) use clause::{Clause, Lead};

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use davit_guest::dynamic::Value;
use davit_guest::{ApiResource, ConfigError, LabelSelector, Reason, WatchName};

use crate::action::Actions;
use crate::blank::ALL_NAMESPACES;
use crate::cel::OBJECT;
use crate::cel::expand::Variables;
use crate::cel::schema::{Published, Schema};
use crate::cel::{Expression, Mistake, Scope, Type, text, whole};
use crate::config::{Config, CountConfig, Proof, RuleConfig};
use crate::keep::Keep;
use crate::mistake::{at, error, in_rule, typed};
use crate::names;
use crate::related::{Link, Related};
use crate::resource;
use crate::selector;
use crate::template::Template;
use crate::written::WriteCheck;

/// How many rules a configuration may have.
const MAX_RULES: usize = 100;

/// A rule.
#[derive(Clone, Debug)]
pub(crate) struct Rule {
    pub(crate) name: String,
    /// The name, as the reason of the plans.
    pub(crate) reason: Reason,
    pub(crate) resource: ApiResource,
    pub(crate) matches: Match,
    pub(crate) clauses: Vec<Clause>,
    /// What leads to its objects, if all of them are one group of `keep`.
    pub(crate) lead: Option<Lead>,
    pub(crate) unless: Option<Expression>,
    pub(crate) keep: Option<Keep>,
    pub(crate) hold: Option<Expression>,
    /// Whether its own acts change what `hold` counts: then it acts on one object at a time.
    pub(crate) is_one_by_one: bool,
    pub(crate) actions: Actions,
    pub(crate) related: Vec<Related>,
    pub(crate) proof: Proof,
    /// Whether the API server has to have what `keep` spares.
    pub(crate) proves_kept: bool,
    pub(crate) message: Template,
    pub(crate) texts: Texts,
}

/// Expressions as the configuration has them.
#[derive(Clone, Debug)]
pub(crate) struct Texts {
    pub(crate) unless: String,
    pub(crate) hold: String,
}

/// Which objects a rule is about.
#[derive(Clone, Debug)]
pub(crate) struct Match {
    pub(crate) namespaces: BTreeSet<String>,
    pub(crate) namespace_selector: Option<NamespaceSelector>,
    pub(crate) label_selector: String,
    pub(crate) field_selector: String,
}

/// The labels of the namespaces whose objects a rule is about.
#[derive(Clone, Debug)]
pub(crate) struct NamespaceSelector {
    pub(crate) labels: LabelSelector,
    /// The namespace of an object.
    pub(crate) namespace: Related,
}

/// A number of objects.
#[derive(Clone, Debug)]
pub(crate) struct Count {
    pub(crate) name: String,
    pub(crate) watch: WatchName<Value>,
    pub(crate) resource: ApiResource,
    pub(crate) label_selector: String,
    /// The parts of its `when`; none if all objects count.
    pub(crate) clauses: Vec<Clause>,
    /// What leads to the objects that count.
    pub(crate) lead: Option<Lead>,
    /// Whether its `when` asks for objects that are being deleted. They do not count otherwise.
    pub(crate) reads_deletion: bool,
}

/// Since when an object is being deleted.
pub(crate) const DELETION: &str = "metadata.deletionTimestamp";

/// The name of the numbers of objects.
pub(crate) const COUNTS: &str = "counts";

/// The rules and the counts of a configuration. What an API server publishes makes more mistakes
/// known.
pub(crate) fn compile(
    config: &Config,
    published: &Published,
) -> Result<(Vec<Rule>, Vec<Count>), ConfigError> {
    if config.rules.is_empty() {
        return Err(error("rules", "write at least one rule"));
    }
    if config.rules.len() > MAX_RULES {
        return Err(error("rules", format!("write {MAX_RULES} rules at most")));
    }
    if config.every < Duration::from_secs(1) {
        return Err(error("every", "it must be at least 1s"));
    }
    let mut names = BTreeSet::new();
    let mut rules = Vec::new();
    for (index, rule) in config.rules.iter().enumerate() {
        let path = format!("rules[{index}]");
        if !is_name(&rule.name) {
            let message =
                "write a short word for metrics and logs: small letters, digits and \"-\"";
            return Err(error(format!("{path}.name"), message));
        }
        if !names.insert(&rule.name) {
            let message = format!("another rule is called \"{}\" too", rule.name);
            return Err(error(format!("{path}.name"), message));
        }
        let compiler = Compiler {
            path,
            rule,
            config,
            published,
        };
        let compiled = compiler.rule();
        rules.push(compiled.map_err(|it| in_rule(&rule.name, it))?);
    }
    let counts = config
        .counts
        .iter()
        .map(|(name, it)| count(name, it, published))
        .collect::<Result<_, _>>()?;
    Ok((rules, counts))
}

/// What `hold` may read.
fn counts(variables: &Variables) -> Scope<'_> {
    Scope {
        bindings: BTreeMap::from([(COUNTS, Schema::Counts)]),
        variables,
    }
}

fn is_name(name: &str) -> bool {
    let is_letter = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    !name.is_empty() && name.len() <= 63 && name.chars().all(is_letter)
}

fn count(name: &str, config: &CountConfig, published: &Published) -> Result<Count, ConfigError> {
    let path = format!("counts.{name}");
    let resource = resource::parse(&config.resource)
        .map_err(|message| error(format!("{path}.resource"), message))?;
    let variables = Variables::new();
    let scope = Scope {
        bindings: BTreeMap::from([(OBJECT, published.schema(&resource))]),
        variables: &variables,
    };
    let clauses = match config.when.as_str() {
        "" => Vec::new(),
        source => clause::compile(&format!("{path}.when"), source, &scope)?,
    };
    at(
        &format!("{path}.labelSelector"),
        selector::labels::check(&config.label_selector),
    )?;
    Ok(Count {
        name: name.to_owned(),
        watch: WatchName::named(&format!("count-{name}")),
        resource,
        label_selector: config.label_selector.clone(),
        lead: clause::lead(&clauses),
        reads_deletion: read_deletion(clauses.iter().map(|it| &it.expression)),
        clauses,
    })
}

/// Whether expressions read since when their object is being deleted.
fn read_deletion<'a>(expressions: impl IntoIterator<Item = &'a Expression>) -> bool {
    expressions
        .into_iter()
        .filter_map(|expression| expression.fields.get(OBJECT))
        .flatten()
        .any(|field| field == DELETION || field == "metadata")
}

/// An expression that is true or false.
fn boolean(field: &str, source: &str, scope: &Scope<'_>) -> Result<Expression, ConfigError> {
    typed(field, source, scope, Type::Bool)
}

struct Compiler<'a> {
    path: String,
    rule: &'a RuleConfig,
    config: &'a Config,
    published: &'a Published,
}

impl Compiler<'_> {
    fn field(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    fn rule(&self) -> Result<Rule, ConfigError> {
        let rule = self.rule;
        let resource = resource::parse(&rule.matches.resource)
            .map_err(|message| error(self.field("match.resource"), message))?;
        let related = self.related(&resource)?;
        let variables = self.variables()?;
        let mut bindings = BTreeMap::from([(OBJECT, self.published.schema(&resource))]);
        for it in &related {
            bindings.insert(it.name.as_str(), it.schema(self.published));
        }
        let scope = Scope {
            bindings,
            variables: &variables,
        };
        self.check_variables(&scope)?;
        let clauses = self.clauses(&scope)?;
        let unless = self.optional("unless", &rule.unless, &scope)?;
        let hold = self.hold(&variables)?;
        let keep = match &rule.keep {
            Some(keep) => Some(Keep::compile(&self.field("keep"), keep, &resource, &scope)?),
            None => None,
        };
        let written = WriteCheck {
            resource: &resource,
            published: self.published,
        };
        let actions = Actions::compile(&self.field("do"), &rule.actions, written, &scope)?;
        if keep.is_some() && actions.eviction_deadline().is_some() {
            let message =
                "thenDeleteAfter counts for each pod alone: it cannot be combined with keep";
            return Err(error(self.field("do.evict.thenDeleteAfter"), message));
        }
        if keep.is_some() && actions.is_only_event() {
            let message = "an event alone spares nothing: leave out keep";
            return Err(error(self.field("keep"), message));
        }
        let is_one_by_one =
            !actions.is_only_event() && self.counts_objects_of(hold.as_ref(), &resource);
        if is_one_by_one && actions.eviction_deadline().is_some() {
            let message = "hold counts the pods of the rule, which therefore acts on one of them \
                           at a time: an eviction that waits for its deletion would keep all \
                           others waiting. Count other objects in hold, or leave out \
                           thenDeleteAfter";
            return Err(error(self.field("do.evict.thenDeleteAfter"), message));
        }
        let message = at(
            &self.field("message"),
            Template::text(&rule.message, &scope),
        )?;
        let texts = Texts {
            unless: rule.unless.trim().to_owned(),
            hold: rule.hold.trim().to_owned(),
        };
        let mut rule = Rule {
            texts,
            name: rule.name.clone(),
            reason: Reason::named(&rule.name),
            matches: self.matches(&resource)?,
            resource,
            lead: keep
                .as_ref()
                .filter(|keep| keep.index_path().is_none())
                .and_then(|_| clause::lead(&clauses)),
            clauses,
            unless,
            keep,
            hold,
            is_one_by_one,
            actions,
            related: Vec::new(),
            proof: Proof::Cache,
            proves_kept: false,
            message,
        };
        // What no expression reads need not be watched. But the rule is not about an object whose
        // owner is of another resource.
        let used: Vec<Related> = related
            .iter()
            .filter(|it| {
                matches!(it.link, Link::Owner)
                    || rule
                        .expressions()
                        .any(|expression| expression.reads(&it.name))
            })
            .cloned()
            .collect();
        rule.related = used;
        rule.proof = self.rule.proof.unwrap_or_else(|| rule.default_proof());
        rule.proves_kept = rule.keep.is_some()
            && match self.rule.proof {
                Some(proof) => proof == Proof::Live,
                None => rule.actions.ends(),
            };
        let kept = rule.keep.as_ref().map_or(0, |keep| keep.count);
        if rule.proves_kept && kept > rule.most_kept() {
            let message = format!(
                "each object that is kept is read from the API server: keep {} at most, or write \
                 proof: cache",
                rule.most_kept()
            );
            return Err(error(self.field("keep"), message));
        }
        Ok(rule)
    }

    fn matches(&self, resource: &ApiResource) -> Result<Match, ConfigError> {
        let matches = &self.rule.matches;
        let names_namespaces =
            !matches.namespaces.is_empty() || matches.namespace_selector.is_some();
        if names_namespaces && crate::cel::schema::is_namespaced(resource) == Some(false) {
            let message = format!("{} are in no namespace", resource.plural);
            return Err(error(self.field("match"), message));
        }
        for name in &matches.namespaces {
            names::check_namespace(name)
                .map_err(|message| error(self.field("match.namespaces"), message))?;
        }
        self.check_selectors(resource)?;
        Ok(Match {
            namespaces: matches.namespaces.iter().cloned().collect(),
            namespace_selector: match &matches.namespace_selector {
                None => None,
                Some(labels) => Some(self.namespace_selector(labels)?),
            },
            label_selector: matches.label_selector.clone(),
            field_selector: matches.field_selector.clone(),
        })
    }

    fn check_selectors(&self, resource: &ApiResource) -> Result<(), ConfigError> {
        let matches = &self.rule.matches;
        at(
            &self.field("match.labelSelector"),
            selector::labels::check(&matches.label_selector),
        )?;
        at(
            &self.field("match.fieldSelector"),
            selector::fields::check(resource, &matches.field_selector),
        )
    }

    fn namespace_selector(&self, labels: &LabelSelector) -> Result<NamespaceSelector, ConfigError> {
        if let Some(mistake) = labels.mistake() {
            return Err(error(self.field("match.namespaceSelector"), mistake));
        }
        if labels.is_empty() {
            let message = format!("it is empty: {ALL_NAMESPACES}");
            return Err(error(self.field("match.namespaceSelector"), message));
        }
        Ok(NamespaceSelector {
            labels: labels.clone(),
            namespace: Related::namespace(),
        })
    }

    fn related(&self, resource: &ApiResource) -> Result<Vec<Related>, ConfigError> {
        let mut related = Related::built_in(resource);
        let object = self.published.schema(resource);
        for (name, config) in &self.rule.related {
            let path = self.field(&format!("related.{name}"));
            let it = Related::compile(&path, name, config, &object, self.published)?;
            related.retain(|other| other.name != *name);
            related.push(it);
        }
        Ok(related)
    }

    fn variables(&self) -> Result<Variables, ConfigError> {
        let mut variables = Variables::new();
        // In their order, so that the number of a variable leads to its name.
        for (number, (name, source)) in self.rule.variables.iter().enumerate() {
            let path = self.field(&format!("variables.{name}"));
            let parsed = at(&path, text::parse_variable(source, number))?;
            variables.insert(name.clone(), parsed);
        }
        Ok(variables)
    }

    /// Checks also those that nothing uses. One may be meant for `hold`.
    fn check_variables(&self, scope: &Scope<'_>) -> Result<(), ConfigError> {
        let counts = counts(scope.variables);
        for (name, source) in &self.rule.variables {
            let of_object = Expression::check(source, scope);
            if of_object.is_err() && Expression::check(source, &counts).is_err() {
                at(&self.field(&format!("variables.{name}")), of_object)?;
            }
        }
        Ok(())
    }

    fn clauses(&self, scope: &Scope<'_>) -> Result<Vec<Clause>, ConfigError> {
        let when = &self.rule.when;
        let field = self.field("when");
        if when.trim().is_empty() {
            return Err(error(field, "say when the rule acts; true for always"));
        }
        clause::compile(&field, when, scope)
    }

    fn optional(
        &self,
        name: &str,
        source: &str,
        scope: &Scope<'_>,
    ) -> Result<Option<Expression>, ConfigError> {
        if source.trim().is_empty() {
            return Ok(None);
        }
        boolean(&self.field(name), source, scope).map(Some)
    }

    fn hold(&self, variables: &Variables) -> Result<Option<Expression>, ConfigError> {
        let hold = self.optional("hold", &self.rule.hold, &counts(variables))?;
        self.check_counts(hold.as_ref())?;
        if hold.is_some() {
            let check = whole::check(&self.rule.hold, COUNTS, variables);
            at(&self.field("hold"), check)?;
        }
        Ok(hold)
    }

    /// Whether `hold` reads a count of a resource, in whatever version.
    fn counts_objects_of(&self, hold: Option<&Expression>, resource: &ApiResource) -> bool {
        let slots = hold.into_iter().flat_map(Expression::slots);
        let mut read = slots.filter_map(|it| it.path.keys().next());
        read.any(|name| {
            let count = self.config.counts.get(name);
            let counted = count.and_then(|it| resource::parse(&it.resource).ok());
            counted.is_some_and(|it| resource::is_same(&it, resource))
        })
    }

    fn check_counts(&self, hold: Option<&Expression>) -> Result<(), ConfigError> {
        for slot in hold.into_iter().flat_map(Expression::slots) {
            let name = slot.path.keys().next().unwrap_or_default();
            if !self.config.counts.contains_key(name) {
                let known = self.config.counts.keys().map(String::as_str);
                let hint = crate::cel::schema::did_you_mean(name, known);
                let hint = match hint.as_str() {
                    "" => ": add it under counts",
                    hint => hint,
                };
                let message = format!("nothing counts \"{name}\"{hint}");
                let column = text::column_of(&self.rule.hold, name);
                return at(
                    &self.field("hold"),
                    Err(Mistake::at_column(column, message)),
                );
            }
        }
        Ok(())
    }
}

impl NamespaceSelector {
    /// The field of the namespace that it reads.
    pub(crate) const FIELD: &str = "metadata.labels";

    /// Whether it selects a namespace. One that is not there is not selected.
    pub(crate) fn selects(&self, namespace: Option<&Value>) -> bool {
        let Some(namespace) = namespace else {
            return false;
        };
        let labels: BTreeMap<String, String> = match namespace.at(["metadata", "labels"]) {
            Some(Value::Map(labels)) => labels
                .iter()
                .filter_map(|(key, value)| Some((key.clone(), value.as_text()?.to_owned())))
                .collect(),
            _ => BTreeMap::new(),
        };
        self.labels.selects(&labels)
    }
}

impl Rule {
    /// A watch that lags is not taken for absent: what ends objects because of other objects
    /// asks the API server for them. With `keep` alone, these others are the ones that it
    /// spares.
    fn default_proof(&self) -> Proof {
        if self.actions.ends() && self.reads_related() {
            Proof::Live
        } else {
            Proof::Cache
        }
    }

    /// Whether it reads its objects, and what is related to them, from the API server.
    pub(crate) fn reads_live(&self) -> bool {
        self.proof == Proof::Live || self.proves_kept
    }

    /// Whether it acts on an object because of others.
    pub(crate) fn reads_others(&self) -> bool {
        self.reads_related() || self.keep.is_some() || self.hold.is_some()
    }

    fn reads_related(&self) -> bool {
        !self.related.is_empty() || self.matches.namespace_selector.is_some()
    }

    /// Whether it evicts pods, and deletes them if that is refused for too long.
    pub(crate) fn has_deadline(&self) -> bool {
        self.actions.eviction_deadline().is_some()
    }

    /// What an object does not lead to, by name, with the field that is not set.
    pub(crate) fn unlinked(&self, object: &Value) -> BTreeMap<&str, String> {
        let related = self.related.iter();
        let unlinked = related.filter_map(|it| Some((it.name.as_str(), it.unlinked(object)?)));
        unlinked.collect()
    }

    /// The expressions that read an object, and what is related to it.
    pub(crate) fn expressions(&self) -> impl Iterator<Item = &Expression> {
        self.decisive()
            .chain(self.actions.expressions())
            .chain(self.message.expressions())
    }

    /// The expressions that decide whether it acts on an object.
    fn decisive(&self) -> impl Iterator<Item = &Expression> {
        let clauses = self.clauses.iter().map(|clause| &clause.expression);
        let keep = self.keep.as_ref().and_then(|keep| keep.by.as_ref());
        clauses.chain(&self.unless).chain(keep)
    }

    /// Whether time can change its result in a way that no comparison with `now` announces.
    pub(crate) fn is_periodic(&self) -> bool {
        let decisive = self.clauses.iter().map(|clause| &clause.expression);
        decisive.chain(&self.unless).any(|it| it.is_periodic)
    }

    /// The fields of the object that it reads.
    pub(crate) fn fields(&self) -> BTreeSet<String> {
        let mut fields: BTreeSet<String> = self
            .expressions()
            .filter_map(|expression| expression.fields.get(OBJECT))
            .flatten()
            .cloned()
            .collect();
        fields.extend(self.related.iter().map(Related::own_path));
        fields.extend(self.actions.fields());
        if self.actions.ends() {
            fields.insert(DELETION.to_owned());
        }
        if let Some(keep) = &self.keep {
            fields.extend(keep.fields());
        }
        fields
    }

    /// The fields of related objects that it reads.
    pub(crate) fn fields_of(&self, related: &Related) -> impl Iterator<Item = String> {
        self.expressions()
            .filter_map(|expression| expression.fields.get(&related.name))
            .flatten()
            .map(|field| field.trim_start_matches("[*]").trim_start_matches('.'))
            .filter(|field| !field.is_empty())
            .map(str::to_owned)
    }

    /// Whether it asks for objects that are being deleted already. Any other rule leaves them
    /// alone. A message or a value that it writes asks for nothing.
    pub(crate) fn reads_deletion(&self) -> bool {
        read_deletion(self.decisive())
    }

    /// The message of a plan by default.
    pub(crate) fn when(&self) -> String {
        let clauses: Vec<&str> = self.clauses.iter().map(|it| &*it.text).collect();
        clauses.join(" && ")
    }
}
