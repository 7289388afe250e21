//! `davit policy test`: what the rules of a file would do with objects.

use anyhow::{Context as _, Result, bail};
use davit_core::object::ApiResource;
use davit_core::untrusted;
use jiff::Timestamp;

use super::Shortfall;
use super::cache::Cache;
use super::cluster::Cluster;
use super::objects::{Objects, Store, resource_of};
use super::report::{Report, Selection, acted_on};
use super::source::{self, PolicySource};
use super::text;
use crate::cli::{PolicyFormat, PolicyTestArguments};
use crate::commands::{connect, print};

/// `davit policy test`
pub(super) async fn test(arguments: PolicyTestArguments) -> Result<()> {
    let sources = source::read(&arguments.file)?;
    let now = arguments.now.unwrap_or_else(Timestamp::now);
    let mut reports = Vec::new();
    if arguments.cluster {
        let cluster = Cluster::discover(connect(arguments.kubeconfig.clone()).await?).await?;
        for source in &sources {
            let objects = cluster.objects(source).await?;
            reports.extend(report(source, &objects, now, &arguments)?);
        }
    } else {
        let store = Store::load(&arguments.objects, now, &resources(&sources))?;
        for source in &sources {
            let watches = &source.explainer.manifest().watches;
            let rules = source.explainer.rules();
            let objects = store.objects(watches, &rules)?;
            reports.extend(report(source, &objects, now, &arguments)?);
        }
    }
    if let (Some(rule), true) = (&arguments.rule, reports.is_empty()) {
        bail!("{} has no rule {rule}", arguments.file.display());
    }
    print::out(&written(&reports, &arguments)?)?;
    judge(&reports, &arguments)
}

/// What the rules of a Controller would do; none if it does not have the rule of `--rule`.
fn report(
    source: &PolicySource,
    objects: &Objects,
    now: Timestamp,
    arguments: &PolicyTestArguments,
) -> Result<Option<Report>> {
    let rules = source.explainer.rules();
    if let Some(rule) = &arguments.rule
        && !rules.iter().any(|it| it.rule == *rule)
    {
        return Ok(None);
    }
    let cache = Cache::new(&source.explainer.manifest().watches, objects)?;
    let explanation = source.explainer.explain(&cache, now.as_millisecond());
    let selection = Selection {
        rule: arguments.rule.as_deref(),
        all: arguments.all,
    };
    Report::new(&source.name, now, &explanation, objects, &selection).map(Some)
}

/// The resources that all rules read.
fn resources(sources: &[PolicySource]) -> Vec<ApiResource> {
    let watches = sources
        .iter()
        .flat_map(|it| &it.explainer.manifest().watches);
    watches.filter_map(resource_of).collect()
}

fn written(reports: &[Report], arguments: &PolicyTestArguments) -> Result<String> {
    Ok(match arguments.output {
        PolicyFormat::Text => {
            let texts = reports
                .iter()
                .map(|report| text::text(report, arguments.all));
            texts.collect::<Vec<_>>().join("\n\n")
        }
        PolicyFormat::Json => {
            let text = serde_json::to_string_pretty(reports);
            untrusted::json(text.context("the reports cannot be written as JSON")?)
        }
    })
}

fn judge(reports: &[Report], arguments: &PolicyTestArguments) -> Result<()> {
    let objects = acted_on(reports);
    match arguments.fail_if {
        Some(threshold) if threshold.is_exceeded(objects) => {
            bail!(Shortfall(format!(
                "the rules act on {}: --fail-if is exceeded",
                text::counted(objects, "object")
            )))
        }
        _ => Ok(()),
    }
}
