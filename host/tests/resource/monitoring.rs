//! The alerts and dashboards in `deploy/`, compared with the metrics of the host.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use davit::metrics::HostMetrics;
use serde_json::{Value, json};

use crate::deploy::{deploy, documents};
use crate::promql::names;

/// The labels that Prometheus adds when it scrapes a replica.
const SCRAPE: [&str; 2] = ["job", "instance"];

/// The labels of each metric, by its name.
fn registered() -> BTreeMap<String, BTreeSet<String>> {
    let metrics = HostMetrics::new().unwrap();
    let all = metrics.described();
    all.map(|(name, labels)| (name.to_owned(), labels.iter().cloned().collect()))
        .collect()
}

/// The alerts.
fn alerts() -> Vec<Value> {
    let rule = &documents("components/monitoring/alerts.yaml")[0];
    let groups = rule["spec"]["groups"].as_array().unwrap().iter();
    groups
        .flat_map(|group| group["rules"].as_array().unwrap().clone())
        .collect()
}

fn dashboard() -> Value {
    let text = std::fs::read_to_string(deploy("dashboards/davit.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// Each expression, with the place where it stands.
fn expressions() -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut all: Vec<_> = alerts()
        .iter()
        .map(|alert| (text(&alert["alert"]), text(&alert["expr"])))
        .collect();
    let dashboard = dashboard();
    for panel in dashboard["panels"].as_array().unwrap() {
        let targets = panel["targets"].as_array().into_iter().flatten();
        all.extend(targets.map(|target| (text(&panel["title"]), text(&target["expr"]))));
    }
    assert!(all.len() > 40, "{}", all.len());
    all
}

#[test]
fn every_metric_of_an_alert_or_dashboard_is_registered_with_its_labels() {
    let registered = registered();
    let mut problems = Vec::new();
    for (place, expression) in expressions() {
        let found = names(&expression);
        assert!(!found.metrics.is_empty(), "{place}: {expression}");
        let mut known: BTreeSet<&str> = SCRAPE.into();
        for (metric, labels) in &found.metrics {
            let suffixes = ["_bucket", "_count", "_sum"];
            let base = suffixes.iter().find_map(|end| metric.strip_suffix(end));
            let is_histogram = base.filter(|base| registered.contains_key(*base));
            let Some(has) = registered.get(is_histogram.unwrap_or(metric)) else {
                problems.push(format!("{place}: there is no metric {metric}"));
                continue;
            };
            known.extend(has.iter().map(String::as_str));
            if metric.ends_with("_bucket") {
                known.insert("le");
            }
            for label in labels {
                let is_bound = label == "le" && metric.ends_with("_bucket");
                if !has.contains(label) && !is_bound {
                    problems.push(format!("{place}: {metric} has no label {label}"));
                }
            }
        }
        for label in &found.groupings {
            if !known.contains(label.as_str()) {
                problems.push(format!("{place}: no metric has the label {label}"));
            }
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
fn the_variable_of_the_dashboard_is_a_label_of_a_metric() {
    let dashboard = dashboard();
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let query = variables
        .iter()
        .find_map(|one| one["query"]["query"].as_str());
    let (metric, label) = query
        .and_then(|query| query.strip_prefix("label_values("))
        .and_then(|query| query.strip_suffix(')')?.split_once(", "))
        .unwrap();
    assert!(registered()[metric].contains(label), "{metric}: {label}");
}

#[test]
fn the_panels_of_the_dashboard_do_not_overlap() {
    let dashboard = dashboard();
    let (mut ids, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for panel in dashboard["panels"].as_array().unwrap() {
        assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
        let [x, y, w, h] = ["x", "y", "w", "h"].map(|one| panel["gridPos"][one].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        for cell in (x..x + w).flat_map(|x| (y..y + h).map(move |y| (x, y))) {
            assert!(taken.insert(cell), "{panel}");
        }
    }
}

#[test]
fn every_alert_has_a_section_in_the_runbook_and_every_section_an_alert() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/runbook.md");
    let page = std::fs::read_to_string(page).unwrap();
    let mut sections = BTreeSet::new();
    for section in page.split("\n## ").skip(1) {
        let (title, text) = section.split_once('\n').unwrap();
        for part in ["**Meaning.**", "**Cause.**", "**Action.**"] {
            assert!(text.contains(part), "{title}: no {part}");
        }
        sections.insert(title.to_owned());
    }
    let mut named = BTreeSet::new();
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let anchor = format!("docs/runbook.md#{}", name.to_lowercase());
        assert_eq!(alert["annotations"]["runbook"], json!(anchor));
        assert!(alert["annotations"]["summary"].is_string(), "{name}");
        let severity = alert["labels"]["severity"].as_str();
        assert!(matches!(severity, Some("critical" | "warning")), "{name}");
        assert!(named.insert(name.to_owned()), "{name} is there twice");
    }
    assert_eq!(named, sections);
}

/// With promtool installed: each alert fires on the series in `data/alerts.yaml`, and none
/// fires on those of two healthy replicas.
#[test]
fn every_alert_fires_when_it_should() {
    let cases = include_str!("../data/alerts.yaml");
    for alert in alerts() {
        let name = alert["alert"].as_str().unwrap();
        let tested = cases.contains(&format!("alertname: {name}\n"));
        assert!(tested, "data/alerts.yaml has no case for {name}");
    }
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("promtool is not installed: the alerts are not evaluated");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let rule = &documents("components/monitoring/alerts.yaml")[0];
    let rules = serde_json::to_string(&rule["spec"]).unwrap();
    std::fs::write(directory.path().join("rules.yaml"), rules).unwrap();
    std::fs::write(directory.path().join("cases.yaml"), cases).unwrap();
    for arguments in [
        ["check", "rules", "rules.yaml"],
        ["test", "rules", "cases.yaml"],
    ] {
        let mut promtool = Command::new("promtool");
        let promtool = promtool.args(arguments).current_dir(directory.path());
        let output = promtool.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8(said).unwrap();
        assert!(output.status.success(), "{said}");
    }
}
