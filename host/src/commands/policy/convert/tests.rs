//! Policies as their documentation has them, in other words, and what they delete afterwards.

use jiff::Timestamp;
use policy::explain::Explainer;
use serde_json::{Value, json};

use super::super::cache::Cache;
use super::super::objects::{Store, resource_of};
use super::kinds::Kinds;
use super::{Conversion, of_files};

const NOW: &str = "2026-11-26T12:00:00Z";

pub(super) fn converted(text: &str) -> Conversion {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policies.yaml");
    std::fs::write(&path, text).unwrap();
    let mut conversion = of_files(std::slice::from_ref(&path), &Kinds::new()).unwrap();
    let prefix = format!("{}: ", path.display());
    for problem in &mut conversion.problems {
        problem.place = problem.place.strip_prefix(&prefix).unwrap().to_owned();
    }
    for controller in &conversion.controllers {
        // What is printed is what the guest accepts.
        let yaml = controller.yaml().unwrap();
        let resource: Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(resource["spec"]["mode"], "DryRun");
        let config = rmp_serde::to_vec_named(&resource["spec"]["config"]).unwrap();
        Explainer::new(&config).unwrap_or_else(|error| panic!("{error:?}: {yaml}"));
    }
    conversion
}

/// The only Controller, without anything left out.
pub(super) fn config(text: &str) -> Value {
    let conversion = converted(text);
    let problems = &conversion.problems;
    assert!(problems.is_empty(), "{problems:?}");
    assert_eq!(conversion.controllers.len(), 1);
    conversion.controllers[0].config()
}

/// `PLACE: MESSAGE` of what is left out.
pub(super) fn problems(text: &str) -> Vec<String> {
    let problems = converted(text).problems.into_iter();
    problems
        .map(|it| format!("{}: {}", it.place, it.message))
        .collect()
}

/// The names of the objects that the rules of a configuration delete.
pub(super) fn deleted(config: &Value, objects: &Value) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("objects.json");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects});
    std::fs::write(&path, list.to_string()).unwrap();
    let explainer = Explainer::new(&rmp_serde::to_vec_named(config).unwrap()).unwrap();
    let watches = &explainer.manifest().watches;
    let resources: Vec<_> = watches.iter().filter_map(resource_of).collect();
    let now: Timestamp = NOW.parse().unwrap();
    let store = Store::load(&[path], now, &resources).unwrap();
    let objects = store.objects(watches, &explainer.rules()).unwrap();
    let cache = Cache::new(watches, &objects).unwrap();
    let explanation = explainer.explain(&cache, now.as_millisecond());
    let mut names: Vec<String> = explanation
        .objects
        .iter()
        .filter(|it| it.findings.iter().any(|it| it.verdict.plan().is_some()))
        .map(|it| it.object.name.clone())
        .collect();
    names.sort();
    names.dedup();
    names
}

pub(super) fn object(api_version: &str, kind: &str, name: &str, more: &Value) -> Value {
    let mut object = json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": {"name": name, "namespace": "shop", "creationTimestamp": "2026-11-01T00:00:00Z"},
    });
    for (pointer, value) in more.as_object().unwrap() {
        let mut at = &mut object;
        for key in pointer.split('.') {
            at = &mut at[key.replace('|', ".")];
        }
        *at = value.clone();
    }
    object
}

fn deployment(name: &str, more: &Value) -> Value {
    object("apps/v1", "Deployment", name, more)
}

#[test]
fn a_cluster_cleanup_policy_deletes_what_its_conditions_select() {
    let config = config(
        r#"
apiVersion: kyverno.io/v2
kind: ClusterCleanupPolicy
metadata: {name: idle-deployments}
spec:
  schedule: "*/10 * * * *"
  deletionPropagationPolicy: Foreground
  match:
    any:
      - resources:
          kinds: [apps/v1/Deployment]
          selector: {matchLabels: {disposable: "yes"}}
          namespaces: ["shop", "team-*"]
  exclude:
    any:
      - resources: {names: ["keep-*"]}
  conditions:
    any:
      - {key: "{{ target.spec.replicas }}", operator: LessThan, value: 2}
      - {key: "{{ target.metadata.annotations.\"clean/me\" || '' }}", operator: Equals, value: now}
"#,
    );
    let rule = &config["rules"][0];
    assert_eq!(rule["match"]["resource"], "deployments.apps");
    assert_eq!(rule["do"]["delete"]["propagationPolicy"], "Foreground");
    let labelled = |name: &str, replicas: i64, more: &Value| {
        let mut object = deployment(name, more);
        object["metadata"]["labels"]["disposable"] = json!("yes");
        object["spec"]["replicas"] = json!(replicas);
        object
    };
    let none = json!({});
    let elsewhere = json!({"metadata.namespace": "other"});
    let team = json!({"metadata.namespace": "team-a"});
    let system = json!({"metadata.namespace": "kube-system"});
    let annotated = json!({"metadata.annotations.clean/me": "now"});
    let mut unlabelled = deployment("unlabelled", &none);
    unlabelled["spec"]["replicas"] = json!(0);
    let objects = json!([
        labelled("small", 1, &none),
        labelled("large", 2, &none),
        labelled("keep-small", 1, &none),
        labelled("elsewhere", 1, &elsewhere),
        labelled("of-team", 1, &team),
        labelled("system", 1, &system),
        labelled("annotated", 5, &annotated),
        unlabelled,
    ]);
    assert_eq!(
        deleted(&config, &objects),
        ["annotated", "of-team", "small"]
    );
}

#[test]
fn a_missing_field_spares_in_kyverno_and_here() {
    let config = config(
        r#"
apiVersion: kyverno.io/v2beta1
kind: CleanupPolicy
metadata: {name: other-teams, namespace: shop}
spec:
  schedule: "0 * * * *"
  match: {any: [{resources: {kinds: [Pod]}}]}
  conditions:
    all:
      - {key: "{{ target.metadata.labels.team }}", operator: NotEquals, value: payments}
      - {key: "{{ target.status.phase }}", operator: AllNotIn, value: [Running, Pending]}
      - key: "{{ time_since('', '{{ target.metadata.creationTimestamp }}', '') }}"
        operator: GreaterThan
        value: 24h
      - {key: "{{ target.metadata.ownerReferences[] || `[]` }}", operator: Equals, value: []}
"#,
    );
    let pod = |name: &str, more: &Value| object("v1", "Pod", name, more);
    let done = |team: &str| json!({"metadata.labels.team": team, "status.phase": "Failed"});
    let young = json!({
        "metadata.labels.team": "web", "status.phase": "Failed",
        "metadata.creationTimestamp": "2026-11-26T11:00:00Z",
    });
    let owned = json!({
        "metadata.labels.team": "web", "status.phase": "Failed",
        "metadata.ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j"}],
    });
    let elsewhere = json!({
        "metadata.labels.team": "web", "status.phase": "Failed", "metadata.namespace": "other",
    });
    let objects = json!([
        pod("web", &done("web")),
        pod("payments", &done("payments")),
        // To Kyverno, it is a quantity, and not unequal to a text.
        pod("numbered", &done("1.2")),
        pod("without-team", &json!({"status.phase": "Failed"})),
        pod(
            "runs",
            &json!({"metadata.labels.team": "web", "status.phase": "Running"})
        ),
        pod("young", &young),
        pod("owned", &owned),
        pod("elsewhere", &elsewhere),
    ]);
    assert_eq!(deleted(&config, &objects), ["web"]);
}

#[test]
fn what_a_cleanup_policy_cannot_say_here_is_named_with_its_place() {
    let policy = |spec: &str| {
        format!(
            "apiVersion: kyverno.io/v2\nkind: ClusterCleanupPolicy\nmetadata: {{name: p}}\nspec:\n  \
             schedule: '* * * * *'\n  {spec}\n"
        )
    };
    let pods = "match: {any: [{resources: {kinds: [Pod]}}]}";
    for (spec, expected) in [
        (
            "match: {any: [{resources: {kinds: [Node]}}]}".to_owned(),
            "spec.match: the resourceFilters of Kyverno's ConfigMap spare all nodes by default",
        ),
        (
            format!("{pods}\n  context: [{{name: a, apiCall: {{urlPath: /x}}}}]"),
            "ClusterCleanupPolicy p spec.context: it has no translation",
        ),
        (
            "match: {any: [{resources: {kinds: [Pod]}, subjects: [{kind: User, name: a}]}]}"
                .to_owned(),
            "spec.match.any[0].subjects: it has no translation",
        ),
        (
            "match: {any: [{resources: {kinds: ['*']}}]}".to_owned(),
            "spec.match.any[0].resources.kinds: \"*\": a rule names one resource",
        ),
        (
            format!(
                "{pods}\n  conditions: {{all: [{{key: '{{{{ images.containers }}}}', operator: Equals, value: a}}]}}"
            ),
            "spec.conditions.all[0].key: \"images.containers\" is not known",
        ),
        (
            format!(
                "{pods}\n  conditions: {{all: [{{key: \"{{{{ to_upper(target.metadata.name) }}}}\", operator: Equals, value: a}}]}}"
            ),
            "spec.conditions.all[0].key: the function to_upper has no translation",
        ),
        (
            format!(
                "{pods}\n  conditions: {{all: [{{key: '{{{{ target.status.fase }}}}', operator: Equals, value: a}}]}}"
            ),
            "did you mean \"phase\"?",
        ),
        (
            format!(
                "{pods}\n  conditions: {{any: [{{key: '{{{{ target.metadata.name }}}}', operator: Equals, value: '10'}}]}}"
            ),
            "\"10\" may be a quantity",
        ),
    ] {
        let problems = problems(&policy(&spec));
        assert_eq!(problems.len(), 1, "{spec}: {problems:?}");
        assert!(problems[0].contains(expected), "{spec}: {problems:?}");
    }
}

/// Those that Kyverno spares by default are in no namespace: they are one.
#[test]
fn a_policy_about_namespaces_spares_those_that_kyverno_spares() {
    let config = config(
        "apiVersion: kyverno.io/v2\nkind: ClusterCleanupPolicy\nmetadata: {name: p}\nspec:\n  \
         schedule: '* * * * *'\n  match: {any: [{resources: {kinds: [Namespace]}}]}\n",
    );
    let namespace =
        |name: &str| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    let names = ["kube-node-lease", "kyverno", "kube-system", "preview"];
    let objects = json!(names.map(namespace));
    assert_eq!(deleted(&config, &objects), ["preview"]);
}

#[test]
fn a_deleting_policy_keeps_its_expressions() {
    let config = config(
        r#"
apiVersion: policies.kyverno.io/v1
kind: DeletingPolicy
metadata: {name: old-tests}
spec:
  schedule: "30 2 * * *"
  matchConstraints:
    resourceRules:
      - {apiGroups: [""], apiVersions: [v1], resources: [pods], operations: ["*"], scope: Namespaced}
    namespaceSelector: {matchLabels: {stage: test}}
    objectSelector: {matchExpressions: [{key: app, operator: Exists}]}
  variables:
    - {name: isOld, expression: "time.now() - timestamp(object.metadata.creationTimestamp) > duration('72h')"}
  conditions:
    - {name: marked, expression: "has(object.metadata.labels.old) && object.metadata.labels.old == 'true'"}
    - {name: old, expression: "variables.isOld"}
    - {name: not-kept, expression: "object.metadata.annotations['keep'] != 'true'"}
"#,
    );
    let pod = |name: &str, old: &str, keep: Option<&str>| {
        let labels = json!({"app": "x", "old": old});
        let mut more = json!({"metadata.labels": labels});
        if let Some(keep) = keep {
            more["metadata.annotations.keep"] = json!(keep);
        }
        object("v1", "Pod", name, &more)
    };
    let namespace = json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": "shop", "labels": {"stage": "test"}},
    });
    let objects = json!([
        namespace,
        pod("old", "true", Some("false")),
        pod("kept", "true", Some("true")),
        pod("young", "false", Some("false")),
        // In the API server's CEL, a missing annotation is an error.
        pod("without-annotation", "true", None),
    ]);
    assert_eq!(deleted(&config, &objects), ["old"]);
}

#[test]
fn a_deleting_policy_with_libraries_of_kyverno_is_left_out() {
    let policy = |expression: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1beta1\nkind: NamespacedDeletingPolicy\n\
             metadata: {{name: p, namespace: shop}}\nspec:\n  schedule: '* * * * *'\n  \
             matchConstraints: {{resourceRules: [{{apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n  \
             conditions: [{{name: a, expression: {expression:?}}}]\n"
        )
    };
    for expression in [
        "resource.Get('v1', 'configmaps', 'default', 'a').data.x == 'y'",
        "globalContext.Get('a', '') != 0",
        "object.metadata.labels.?old.orValue('') == 'true'",
        "image(object.spec.containers[0].image).registry() == 'x'",
        // In Kyverno, what is missing there is an error, and the object stays.
        "object.spec.containers.exists(c, c.securityContext.runAsNonRoot != true)",
        "(has(object.metadata.labels.a) && false) || object.metadata.labels.a != 'b'",
    ] {
        assert_eq!(problems(&policy(expression)).len(), 1, "{expression}");
        assert!(converted(&policy(expression)).controllers.is_empty());
    }
    let config = config(&policy("object.status.phase == 'Failed'"));
    assert_eq!(config["rules"][0]["match"]["namespaces"], json!(["shop"]));
}

/// A comment that ends with its line hides nothing. Another one may hide a clause.
#[test]
fn a_comment_in_an_expression_hides_no_clause() {
    let policy = |expression: &str| {
        format!(
            "apiVersion: policies.kyverno.io/v1\nkind: DeletingPolicy\nmetadata: {{name: p}}\n\
             spec:\n  schedule: '* * * * *'\n  matchConstraints: {{resourceRules: \
             [{{apiGroups: [''], apiVersions: [v1], resources: [pods]}}]}}\n  \
             conditions:\n  - {{name: a, expression: \"{expression}\"}}\n  \
             - {{name: b, expression: \"object.metadata.namespace == 'other'\"}}\n",
        )
    };
    let config = config(&policy("// or b\\nobject.metadata.name == 'a'"));
    let objects = json!([object("v1", "Pod", "a", &json!({}))]);
    assert!(deleted(&config, &objects).is_empty());
    let left_out = problems(&policy("object.metadata.name == 'a' // or b"));
    assert!(left_out[0].contains("a comment hides what stands behind it"));
}

#[test]
fn the_label_of_kyverno_is_a_time_to_live() {
    let labelled = |name: &str, ttl: &str| {
        object(
            "v1",
            "ConfigMap",
            name,
            &json!({"metadata.labels.cleanup|kyverno|io/ttl": ttl}),
        )
    };
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\n  labels: {cleanup.kyverno.io/ttl: 2d}\n";
    let config = config(text);
    let objects = json!([
        labelled("days", "2d"),
        labelled("long", "90d"),
        labelled("weeks", "1w"),
        labelled("hours", "1h30m"),
        labelled("date", "2026-11-25"),
        labelled("future", "2026-11-27"),
        labelled("time", "2026-11-26T115959Z"),
        labelled("later", "2026-11-26T120001Z"),
        labelled("nonsense", "soon"),
        object("v1", "ConfigMap", "none", &json!({})),
    ]);
    assert_eq!(
        deleted(&config, &objects),
        ["date", "days", "hours", "time", "weeks"]
    );
    let policies: Vec<&Value> = config["rules"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["do"]["delete"])
        .collect();
    assert_eq!(policies.len(), 4);
    assert_eq!(policies[1]["propagationPolicy"], "Foreground");
}
