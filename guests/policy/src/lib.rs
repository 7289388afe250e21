//! Rules in CEL as a Davit guest: its policy is its configuration.
//!
//! A rule says which objects it is about (`match`), when it acts (`when`), what it spares
//! (`unless`, `keep`), when it waits (`hold`) and what it does (`do`). The watches, the fields, the
//! indexes and the permissions follow from the rules. `docs/policies.md` explains them to operators.
//!
//! An object is judged when a field that a rule reads has changed, or something related to it,
//! and at the moment at which a comparison with `now` changes: never in between. What fails does
//! not act.

mod action;
mod blank;
mod call;
mod cel;
mod completed;
mod config;
mod evaluate;
pub mod explain;
mod explanation;
mod judge;
mod keep;
mod mistake;
mod names;
mod pointer;
mod reads;
mod related;
mod report;
mod resource;
mod rule;
mod selector;
mod simple;
mod sources;
mod template;
mod written;

use std::time::Duration;

use davit_guest::{
    ConfigError, Context, Controller, Decision, LiveFields, Manifest, QueueName, Retry, WorkItem,
    WrittenConfig,
};

pub use config::{
    ActionsConfig, Config, CountConfig, DeleteConfig, EventConfig, EvictConfig, KeepConfig,
    MatchConfig, PatchConfig, Proof, RelatedConfig, RuleConfig, TaintConfig, UntaintConfig,
};
pub use explanation::{Explanation, Finding, ObjectExplanation, RuleMatch, Verdict};
pub use judge::Outcome;

use call::Call;
use cel::schema::Published;
use rule::{Count, Rule};
use sources::{EVICTIONS, GROUPS, ONE_BY_ONE, PASSES, Source, Sources};

/// The rules, compiled.
#[derive(Debug)]
pub struct Policy {
    rules: Vec<Rule>,
    counts: Vec<Count>,
    sources: Sources,
    every: Duration,
}

davit_guest::export!(Policy);

impl Policy {
    fn rules_of<'a>(&'a self, source: &Source) -> impl Iterator<Item = &'a Rule> {
        source
            .rules
            .iter()
            .filter_map(|index| self.rules.get(*index))
    }

    fn decide(&self, call: &Call<'_>, item: &WorkItem) -> Decision {
        match item.queue {
            GROUPS => call.group(item),
            EVICTIONS => call.eviction(item),
            ONE_BY_ONE => call.one_by_one(item),
            PASSES => match self.source(QueueName::named(&item.key)) {
                Some(source) => call.pass(source, &item.cursor),
                None => Decision::done(),
            },
            queue => match (self.source(queue), self.related(queue)) {
                (Some(source), _) => call.object(source, item),
                (None, Some(watch)) => call.related_changed(watch, item),
                (None, None) => Decision::done(),
            },
        }
    }

    /// What the rules would do with the objects of a call, and why or why not.
    #[must_use]
    pub fn explain(&self, cx: &Context<'_>) -> Explanation {
        Explanation {
            rules: self.matches(),
            objects: Call::new(self, cx, &[]).explain(),
        }
    }

    /// The objects that the rules are about, by rule.
    fn matches(&self) -> Vec<RuleMatch> {
        let rules = self.rules.iter().zip(&self.sources.of_rule);
        let rules = rules.map(|(rule, source)| RuleMatch {
            rule: rule.name.clone(),
            watch: self
                .sources
                .matched
                .get(*source)
                .map_or_else(String::new, |source| source.name.as_str().to_owned()),
            resource: rule.resource.clone(),
            namespaces: rule.matches.namespaces.iter().cloned().collect(),
            label_selector: rule.matches.label_selector.clone(),
            field_selector: rule.matches.field_selector.clone(),
        });
        rules.collect()
    }

    fn source(&self, queue: QueueName) -> Option<&Source> {
        self.sources.matched.iter().find(|it| it.queue == queue)
    }

    fn related(&self, queue: QueueName) -> Option<&sources::RelatedWatch> {
        self.sources.related.iter().find(|it| it.queue == queue)
    }
}

impl Controller for Policy {
    type Config = Config;

    fn check_written(config: &WrittenConfig<'_>) -> Result<(), ConfigError> {
        blank::check(&config.value()?)
    }

    fn new(config: Config) -> Result<Self, ConfigError> {
        let (rules, counts) = rule::compile(&config, &Published::default())?;
        Ok(Self {
            sources: Sources::of(&rules),
            every: config.every,
            rules,
            counts,
        })
    }

    fn manifest(&self) -> Manifest {
        sources::manifest(&self.rules, &self.counts, &self.sources, self.every)
    }

    fn live_reads(&self) -> Vec<LiveFields> {
        sources::live_reads(&self.rules)
    }

    fn reconcile(&self, cx: &Context<'_>, item: &WorkItem) -> Result<Decision, Retry> {
        let mut decisions = self.reconcile_batch(cx, std::slice::from_ref(item));
        decisions.pop().unwrap_or_else(|| Ok(Decision::done()))
    }

    fn reconcile_batch(
        &self,
        cx: &Context<'_>,
        items: &[WorkItem],
    ) -> Vec<Result<Decision, Retry>> {
        let call = Call::new(self, cx, items);
        let mut decisions: Vec<Decision> =
            items.iter().map(|item| self.decide(&call, item)).collect();
        let changes = call.remember_changes();
        let report = call.report.into_inner().commands(cx);
        if let Some(first) = decisions.first_mut() {
            first.commands.extend(report.into_iter().chain(changes));
        }
        decisions.into_iter().map(Ok).collect()
    }
}
