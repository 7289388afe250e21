use davit_core::trust::{TrustPolicy, UnsignedPolicy};

use super::*;
use davit_core::api::ModuleSource;
use davit_core::gate::Mode;

fn error(text: &str) -> String {
    parse(Path::new("c.yaml"), text).unwrap_err().to_string()
}

#[test]
fn a_small_file_is_enough() {
    let config = parse(
        Path::new("c.yaml"),
        "controllers:\n- name: podgc\n  module: {builtin: podgc}\n",
    )
    .unwrap();
    let controller = &config.controllers.unwrap()[0];
    assert_eq!(controller.spec.mode, Mode::DryRun);
    let builtin = ModuleSource::Builtin("podgc".into());
    assert_eq!(controller.spec.module, builtin.into());
    assert_eq!(config.client, ClientConfig::default());
}

/// The error in an entry of `controllers` with these additional fields.
fn entry(rest: &str) -> String {
    let error = error(&format!(
        "controllers:\n- name: podgc\n  module: {{builtin: podgc}}\n  {rest}\n"
    ));
    let found = error.strip_prefix("c.yaml: controllers[0].");
    found.unwrap_or(&error).to_owned()
}

#[test]
fn a_file_that_does_not_fit_is_refused_by_the_path_of_the_value() {
    for (text, expected) in [
        (
            "",
            "expected a map (controllers, client, journal, trust), found nothing",
        ),
        (
            "# none",
            "expected a map (controllers, client, journal, trust), found nothing",
        ),
        (
            "- a",
            "expected a map (controllers, client, journal, trust), found a list",
        ),
        (
            "controler: []",
            "controler: unknown field, expected one of controllers, client, journal, trust",
        ),
        ("controllers: 5", "controllers: expected a list, found 5"),
        (
            "controllers: [5]",
            "controllers[0]: expected a map with a name and a module, found 5",
        ),
        ("controllers: [{}]", "controllers[0].name: it must be set"),
        (
            "controllers: [{name: 5}]",
            "controllers[0].name: expected text, found 5",
        ),
        (
            "controllers: [{name: A_b}]",
            "controllers[0].name: expected a DNS label (lower-case letters, digits and \
             dashes, 63 at most), found \"A_b\"",
        ),
        (
            "controllers: [{name: a}]",
            "controllers[0].module: it must be set",
        ),
        (
            "controllers: [{name: a, module: ~}]",
            "controllers[0].module: it must be set",
        ),
        (
            "controllers: [{name: a, module: podgc}]",
            "controllers[0].module: expected a map (builtin, file, configMap, oci, digest, \
             verify), found \"podgc\"",
        ),
        (
            "controllers: [{name: a, module: {}}]",
            "controllers[0].module: expected one of builtin, file, configMap, oci, found none",
        ),
        (
            "controllers: [{name: a, module: {builtin: b}}, {name: a, module: {builtin: b}}]",
            "controllers[1].name: a second controller is called \"a\"",
        ),
        ("client: 7", "client: expected a map (qps, burst), found 7"),
        (
            "client: {rate: 7}",
            "client.rate: unknown field, expected one of qps, burst",
        ),
        (
            "client: {qps: fast}",
            "client.qps: expected a number, found \"fast\"",
        ),
        (
            "client: {qps: 0}",
            "client.qps: expected a number above 0, found 0",
        ),
        (
            "client: {qps: -1.5}",
            "client.qps: expected a number above 0, found -1.5",
        ),
        (
            "client: {burst: 1.5}",
            "client.burst: expected a whole number, found 1.5",
        ),
        (
            "client: {burst: -1}",
            "client.burst: expected a whole number from 0 to 4294967295, found -1",
        ),
        (
            "client: {burst: 0}",
            "client.burst: expected a number above 0, found 0",
        ),
        (
            "controllers: [{name: a, name: b}]",
            "is not YAML: line 1 column 25: duplicate mapping key: name",
        ),
    ] {
        assert_eq!(error(text), format!("c.yaml: {expected}"), "{text}");
    }
}

/// Invalid controllers, and their errors.
const ENTRIES: &[(&str, &str)] = &[
    (
        "colour: red",
        "colour: unknown field, expected one of module, mode, compareWith, config, permissions, \
             guardrails, limits, rollout, serviceAccountName, undo",
    ),
    (
        "mode: Enforced",
        "mode: expected one of Enforce, DryRun, Disabled, found \"Enforced\"",
    ),
    (
        "mode: On",
        "mode: expected one of Enforce, DryRun, Disabled, found true",
    ),
    (
        "mode: [1]",
        "mode: expected one of Enforce, DryRun, Disabled, found a list",
    ),
    ("config: 7", "config: expected a map, found 7"),
    ("config: []", "config: expected a map, found a list"),
    (
        "permissions: {verb: get}",
        "permissions.verb: unknown field, expected one of reads, writes",
    ),
    (
        "permissions: [get pods]",
        "permissions: expected a map (reads, writes), found a list",
    ),
    (
        "permissions: {reads: {resource: pods}}",
        "permissions.reads: expected a list, found a map",
    ),
    (
        "permissions: {writes: [delete pods]}",
        "permissions.writes[0]: expected a map (verb, group, resource, namespaces), found \
             \"delete pods\"",
    ),
    (
        "permissions: {writes: [{verb: delete}]}",
        "permissions.writes[0].resource: it must be set",
    ),
    (
        "permissions: {writes: [{verb: update, resource: pods}]}",
        "permissions.writes[0].verb: \"update\" is not a verb of writes: use one of create, patch, \
             delete",
    ),
    (
        "permissions: {reads: [{resource: \"\"}]}",
        "permissions.reads[0].resource: expected a resource, such as pods",
    ),
    (
        "permissions: {reads: [{resource: pods, fields: [\"spec[\"]}]}",
        "permissions.reads[0].fields[0]: \"spec[\" is not a field path: a field name is empty",
    ),
    (
        "limits: much",
        "limits: expected a map (memoryMib, callMillis, instances, notes, noteMib, queueItems, queueMib, \
             rateGroups, metricSeries, comparedMib, planMib, liveReadMib, logKibPerMinute), found \"much\"",
    ),
    (
        "limits: {memoryMib: much}",
        "limits.memoryMib: expected a whole number, found \"much\"",
    ),
    (
        "limits: {memoryMib: 64.5}",
        "limits.memoryMib: expected a whole number, found 64.5",
    ),
    (
        "limits: {memoryMib: -1}",
        "limits.memoryMib: expected a whole number from 0 to 4294967295, found -1",
    ),
    (
        "limits: {instances: 0}",
        "limits.instances: expected a number from 1 to 16, found 0",
    ),
    (
        "guardrails: {deletesPercentPerMinute: 300}",
        "guardrails.deletesPercentPerMinute: expected a whole number from 1 to 100, \
             found 300",
    ),
    (
        "guardrails: {deletesPercentPerMinute: half}",
        "guardrails.deletesPercentPerMinute: expected a whole number, found \"half\"",
    ),
    (
        "guardrails: {cooldown: 30}",
        "guardrails.cooldown: expected a duration such as 30s, 10m or 1h30m, or \"until \
             reset\", found 30",
    ),
    (
        "guardrails: {cooldown: soon}",
        "guardrails.cooldown: expected a duration such as 30s, 10m or 1h30m, or \"until \
             reset\", found \"soon\"",
    ),
    (
        "guardrails: {cooldown: 1s}",
        "guardrails.cooldown: expected 10s or more, or \"until reset\", found 1s",
    ),
    (
        "rollout: {steps: shadow 10m}",
        "rollout.steps: expected a list, found \"shadow 10m\"",
    ),
    (
        "rollout: {steps: [shadow 1m, shadow]}",
        "rollout.steps[1]: expected a step such as \"shadow 10m\", \"weight 10 for 10m\" or \
             \"weight 50 until promoted\", found \"shadow\"",
    ),
    (
        "rollout: {steps: [10]}",
        "rollout.steps[0]: expected a step such as \"shadow 10m\", \"weight 10 for 10m\" or \
             \"weight 50 until promoted\", found 10",
    ),
    (
        "rollout: {paused: 1}",
        "rollout.paused: expected true or false, found 1",
    ),
    (
        "rollout: {cohort: {by: Pod}}",
        "rollout.cohort.by: expected one of Uid, Namespace, Owner, Node, found \"Pod\"",
    ),
    (
        "rollout: {cohort: {matchLabels: {tier: 1}}}",
        "rollout.cohort.matchLabels.tier: expected text, found 1",
    ),
    (
        "rollout: {analysis: {window: 5}}",
        "rollout.analysis.window: expected a duration such as 30s, 10m or 1h30m, found 5",
    ),
    (
        "rollout: {analysis: {maxDisagreementPercent: 101}}",
        "rollout.analysis.maxDisagreementPercent: expected a whole number from 0 to 100, \
             found 101",
    ),
    (
        "serviceAccountName: [a]",
        "serviceAccountName: expected text, found a list",
    ),
    (
        "undo: {kinds: [{resource: pods/status}]}",
        "undo.kinds[0].resource: expected a resource without a subresource, such as pods",
    ),
];

#[test]
fn a_controller_that_does_not_fit_is_refused_in_words_of_its_own() {
    for (text, expected) in ENTRIES {
        assert_eq!(entry(text), *expected, "{text}");
    }
    // The found value is data: on one line, and shortened.
    let long = format!("mode: \"a\\nb\\e[31m{}\"", "x".repeat(10_000));
    let found = entry(&long);
    assert!(found.contains(r#"found "a\nb\u{1b}[31mxxx"#), "{found}");
    assert!(found.len() < 300, "{found}");
}

#[test]
fn a_field_without_a_value_is_absent() {
    let text = "controllers: [{name: a, module: {builtin: b, digest: ~}, mode: ~, limits: ~}]\n\
        client: ~\n";
    let config = parse(Path::new("c.yaml"), text).unwrap();
    assert_eq!(config.client, ClientConfig::default());
    let spec = &config.controllers.unwrap()[0].spec;
    assert_eq!(spec.mode, Mode::DryRun);
    assert_eq!(spec.limits, davit_core::api::LimitConfig::default());
}

#[test]
fn a_list_without_entries_is_empty_and_not_absent() {
    let controllers = |text| parse(Path::new("c.yaml"), text).unwrap().controllers;
    assert_eq!(controllers("controllers:\n# - name: a\n"), Some(vec![]));
    assert_eq!(controllers("controllers: []\n"), Some(vec![]));
    assert_eq!(controllers("client: {qps: 5}\n"), None);
}

/// kubectl reads YAML 1.1, in which `Off`, `On`, `No` and `Yes` are booleans.
#[test]
fn no_mode_needs_quotes() {
    let schema = serde_json::to_value(schemars::schema_for!(Mode)).unwrap();
    let modes = schema["oneOf"].as_array().unwrap().iter();
    let modes: Vec<&str> = modes.filter_map(|mode| mode["const"].as_str()).collect();
    assert_eq!(modes.len(), 3, "{schema}");
    for mode in modes {
        let value: Value = serde_saphyr::from_str(mode).unwrap();
        assert_eq!(value, mode);
        let text = format!("controllers: [{{name: a, module: {{builtin: b}}, mode: {mode}}}]");
        parse(Path::new("c.yaml"), &text).unwrap();
    }
    let off: Value = serde_saphyr::from_str("Off").unwrap();
    assert_eq!(off, false, "the test would notice a boolean");
}

#[test]
fn names_are_dns_labels() {
    assert!(is_dns_label("podgc-2"));
    for bad in ["", "-a", "a-", "A", "a.b", &"x".repeat(64)] {
        assert!(!is_dns_label(bad), "{bad}");
    }
}

#[test]
fn trust_is_a_dry_run_unless_the_file_says_otherwise() {
    let trust = |text: &str| parse(Path::new("c.yaml"), text).unwrap().trust();
    let policy = |unsigned, files| TrustPolicy { unsigned, files };
    for (text, expected) in [
        ("{}", policy(UnsignedPolicy::DryRunOnly, false)),
        ("trust:", policy(UnsignedPolicy::DryRunOnly, false)),
        ("controllers: []", policy(UnsignedPolicy::DryRunOnly, true)),
        (
            "trust: {unsigned: Allow}",
            policy(UnsignedPolicy::Allow, false),
        ),
        (
            "controllers: []\ntrust: {unsigned: Deny}",
            policy(UnsignedPolicy::Deny, true),
        ),
    ] {
        assert_eq!(trust(text), expected, "{text}");
    }
    for (text, expected) in [
        (
            "trust: {unsigned: deny}",
            "trust.unsigned: expected one of Deny, DryRunOnly, Allow, found \"deny\"",
        ),
        (
            "trust: {signed: Deny}",
            "trust.signed: unknown field, expected one of unsigned",
        ),
    ] {
        assert_eq!(error(text), format!("c.yaml: {expected}"));
    }
}

#[test]
fn the_keys_of_the_journal_are_refused_by_name() {
    for (text, expected) in [
        (
            "journal: {maxMib: 7}",
            "journal.maxMib: expected a number from 8 to 1073741824, found 7",
        ),
        (
            "journal: {maxAge: soon}",
            "journal.maxAge: expected a duration such as 30s, 10m or 1h30m, found \"soon\"",
        ),
        (
            "journal: {dir: a}",
            "journal.dir: unknown field, expected one of directory, maxAge, maxMib, segmentAge, \
             sync, profile",
        ),
        (
            "journal: {directory: ''}",
            "journal.directory: expected a path, found an empty text",
        ),
        (
            "journal: {directory: 5}",
            "journal.directory: expected text, found 5",
        ),
    ] {
        assert_eq!(error(text), format!("c.yaml: {expected}"));
    }
    let parsed = parse(Path::new("c.yaml"), "journal: ~").unwrap();
    assert_eq!(parsed.journal, JournalConfig::default());
}

#[test]
fn a_changed_journal_waits_for_the_next_start() {
    let config = |text: &str| parse(Path::new("c.yaml"), text).unwrap();
    let before = config("{controllers: [], journal: {directory: a}}");
    let after = config("{controllers: [], journal: {directory: b}, client: {qps: 5}}");
    assert_eq!(before.change(&after).deferred, ["client", "journal"]);
    assert!(before.change(&before).deferred.is_empty());
}
