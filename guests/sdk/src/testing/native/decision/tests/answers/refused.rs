//! What every host refuses.

use super::*;

/// A MessagePack map that ends within its key.
const TRUNCATED: &[u8] = b"\x81\xa1";

/// Answers to one item, each with the error of the host.
pub(in super::super) fn refused() -> Vec<(Vec<Decision>, String)> {
    let mut refused = Vec::new();
    let mut add = |decision: Decision, place: &str, problem: &str| {
        let reason = format!("decision 0{place}{problem}");
        refused.push((vec![decision], reason));
    };
    for (decision, problem) in too_many() {
        add(decision, "", problem);
    }
    for (command, problem) in refused_commands() {
        add(commands(vec![command]), ": ", &problem);
    }
    for (plan, problem) in refused_plans() {
        add(plans(vec![plan]), ", plan 0: ", &problem);
    }
    for (step, problem) in refused_steps() {
        // The place is where the fault is, not where the answer starts.
        let second = plan(vec![delete("", None), step]);
        let both = plans(vec![plan(Vec::new()), second]);
        add(both, ", plan 1, step 1: ", &problem);
    }
    let count = |answer: Vec<Decision>| {
        let reason = format!("{} decisions for 1 items", answer.len());
        (answer, reason)
    };
    refused.extend([count(Vec::new()), count(vec![done(), done()])]);
    refused
}

fn too_many() -> Vec<(Decision, &'static str)> {
    let cursor = Decision {
        verdict: Verdict::ContinueFrom("x".repeat(1025)),
        ..done()
    };
    let steps = plan(vec![delete("", None); 33]);
    vec![
        (
            plans(vec![plan(Vec::new()); 10_001]),
            ": 10001 plans; the limit is 10000",
        ),
        (
            commands(vec![Command::Cancel(item("work", "a")); 10_001]),
            ": 10001 commands; the limit is 10000",
        ),
        (cursor, ": 1025 bytes in the cursor; the limit is 1024"),
        (plans(vec![steps]), ", plan 0: 33 steps; the limit is 32"),
    ]
}

fn refused_commands() -> Vec<(Command, String)> {
    let long = "x".repeat(1025);
    let too_long = |what: &str| format!("1025 bytes in {what}; the limit is 1024");
    let undeclared = || "the queue \"leisure\" is not declared".to_owned();
    let note = |body: &[u8], problem: &str| {
        let text = format!("the body of the note is not JSON in MessagePack: {problem}");
        (set_note("a", Some(body.to_vec())), text)
    };
    let mut refused = vec![
        (enqueue("leisure", "a", ""), undeclared()),
        (Command::Cancel(item("leisure", "a")), undeclared()),
        (set_rate("leisure", "", 1.0, 1), undeclared()),
        (
            Command::Cancel(item("a\nb", "a")),
            "the queue \"a\\nb\" is not declared".to_owned(),
        ),
        (enqueue("work", &long, ""), too_long("the key of an item")),
        (enqueue("work", "a", &long), too_long("a group")),
        (
            Command::Cancel(item("work", &long)),
            too_long("the key of an item"),
        ),
        (set_rate("work", &long, 1.0, 1), too_long("a group")),
        (set_note(&long, None), too_long("the key of a note")),
        note(TRUNCATED, "it is truncated"),
        note(b"\xc0\xc0", "bytes follow the value"),
        note(b"\x82\xa1a\x01\xa1a\x02", "a map has a key twice"),
        note(&[0x91; 200], "it is nested deeper than 64 levels"),
    ];
    for (per_second, burst) in [(f64::NAN, 1), (-1.0, 1), (f64::INFINITY, 1), (1.0, 0)] {
        let problem = format!("the rate is {per_second} a second with a burst of {burst}");
        refused.push((set_rate("work", "", per_second, burst), problem));
    }
    for (measure, problem) in refused_measures() {
        refused.push((Command::Measure(measure), problem));
    }
    refused
}

fn refused_measures() -> Vec<(Measure, String)> {
    let problem = |name: &str, problem: &str| format!("the measure of \"{name}\" {problem}");
    let misfit = |name: &str, labels, amount, text: &str, kind: &str| {
        let text = format!("is {text}, which a {kind} does not accept");
        (measure(name, labels, amount), problem(name, &text))
    };
    vec![
        (
            measure("other", 0, Amount::Add(1.0)),
            "the metric \"other\" is not declared".to_owned(),
        ),
        (
            measure("total", 2, Amount::Add(1.0)),
            problem("total", "has 2 labels, 1 are declared"),
        ),
        (
            measure("size", 0, Amount::Set(f64::NAN)),
            problem("size", "is NaN"),
        ),
        misfit("total", 1, Amount::Add(-1.0), "Add(-1.0)", "Counter"),
        misfit("total", 1, Amount::Set(1.0), "Set(1.0)", "Counter"),
        misfit("size", 0, Amount::Observe(1.0), "Observe(1.0)", "Gauge"),
        misfit("seconds", 0, Amount::Add(1.0), "Add(1.0)", "Histogram"),
        misfit("errors", 0, Amount::Add(1.0), "Add(1.0)", "SyncErrors"),
    ]
}

/// A part of a target.
type Part = fn(&mut Target) -> &mut String;

const PARTS: [(&str, Part); 5] = [
    ("apiVersion", |it| &mut it.api_version),
    ("kind", |it| &mut it.kind),
    ("namespace", |it| &mut it.namespace),
    ("name", |it| &mut it.name),
    ("uid", |it| &mut it.uid),
];

fn refused_plans() -> Vec<(Plan, String)> {
    let with = |change: &dyn Fn(&mut Plan)| {
        let mut plan = plan(Vec::new());
        change(&mut plan);
        plan
    };
    let waiting_for = |item: &QueueKey| with(&|plan| plan.when_cancelled = Some(item.clone()));
    let mut refused = vec![
        (
            waiting_for(&item("leisure", "a")),
            "the queue \"leisure\" is not declared".to_owned(),
        ),
        (
            waiting_for(&item("work", "a")),
            "the plan depends on the cancellation of \"a\", but no command cancels it".to_owned(),
        ),
        (
            measured("perhaps", measure("total", 1, Amount::Add(1.0))),
            "the time of a measure is \"perhaps\"; this host knows attempted, succeeded, gone and \
             failed"
                .to_owned(),
        ),
    ];
    for (measure, problem) in refused_measures() {
        refused.push((measured("failed", measure), problem));
    }
    let long = "x".repeat(1025);
    let too_long = |what: &str| format!("1025 bytes in {what}; the limit is 1024");
    for (what, part) in PARTS {
        let plan = with(&|plan| part(&mut plan.target).clone_from(&long));
        refused.push((plan, too_long(&format!("the {what} of the target"))));
    }
    let options = DeleteOptions {
        resource_version: long.clone(),
        ..options("", None)
    };
    for step in [Step::Delete(options.clone()), Step::Evict(options)] {
        refused.push((plan(vec![step]), too_long("a resourceVersion")));
    }
    let created = object(&text("v1"), &text("Pod"), &[("name", &text(&long))]);
    refused.push((
        plan(vec![create(created)]),
        too_long("the name of the created object"),
    ));
    refused
}

fn refused_steps() -> Vec<(Step, String)> {
    let patch = |kind, subresource, body: &[u8], problem: &str| {
        (patch(kind, subresource, body), problem.to_owned())
    };
    let body = |kind, body, problem: &str| {
        patch(kind, "", body, &format!("the body of the patch {problem}"))
    };
    let known = |what: &str, value: &str, known: &str| {
        format!("the {what} is \"{value}\"; this host knows {known}")
    };
    let policies = || {
        let policies = "Background, Foreground and Orphan";
        known("propagation policy", "Sideways", policies)
    };
    let negative = || "the grace period is -1".to_owned();
    let mut refused = vec![
        patch(
            "server-side",
            "",
            MAP,
            &known(
                "patch kind",
                "server-side",
                "strategic-merge, merge, json, apply and apply-force",
            ),
        ),
        patch(
            "merge",
            "scale",
            MAP,
            &known("subresource", "scale", "status, or none"),
        ),
        body(
            "merge",
            TRUNCATED,
            "is not JSON in MessagePack: it is truncated",
        ),
        body(
            "strategic-merge",
            b"\xcb\x7f\xf8\0\0\0\0\0\0",
            "is not JSON in MessagePack: it contains a number that is not finite, which JSON does \
             not have",
        ),
        body("merge", LIST, "is not an object"),
        body("strategic-merge", b"\xc3", "is not an object"),
        body("json", MAP, "is not a list of operations"),
        (delete("Sideways", None), policies()),
        (Step::Evict(options("Sideways", None)), policies()),
        (delete("", Some(-1)), negative()),
        (Step::Evict(options("", Some(-1))), negative()),
        (
            event("Alarm"),
            known("event type", "Alarm", "Normal and Warning"),
        ),
    ];
    for (body, problem) in refused_objects() {
        let problem = format!("the body of the creation {problem}");
        refused.push((create(body), problem));
    }
    refused
}

/// Bodies of creations.
fn refused_objects() -> Vec<(Vec<u8>, &'static str)> {
    const NO_TYPE: &str = "has no apiVersion and kind";
    const NO_NAME: &str = "has no metadata.name";
    const GENERATED: &str = "has metadata.generateName: after a lost reply, it would be created \
                             twice; set metadata.name alone";
    let number: &[u8] = b"\x01";
    let (version, kind, name) = (text("v1"), text("Pod"), text("a"));
    let pod = |metadata: &[(&str, &[u8])]| object(&version, &kind, metadata);
    vec![
        (
            TRUNCATED.to_vec(),
            "is not JSON in MessagePack: it is truncated",
        ),
        (
            b"\x81\xa1a\xc4\x01\x00".to_vec(),
            "is not JSON in MessagePack: it contains binary data or an extension type, which JSON \
             does not have",
        ),
        (LIST.to_vec(), "has no metadata"),
        (
            map(&[("apiVersion", &version), ("kind", &kind)]),
            "has no metadata",
        ),
        (
            map(&[("apiVersion", &version), ("metadata", number)]),
            "has no metadata",
        ),
        (object(&text(""), &kind, &[("name", &name)]), NO_TYPE),
        (object(number, &kind, &[("name", &name)]), NO_TYPE),
        (object(&version, &text(""), &[("name", &name)]), NO_TYPE),
        (pod(&[("namespace", &name)]), NO_NAME),
        (pod(&[("name", &text(""))]), NO_NAME),
        (pod(&[("name", number)]), NO_NAME),
        (pod(&[("generateName", &text("a-"))]), GENERATED),
        (
            pod(&[("name", &name), ("generateName", &text("a-"))]),
            GENERATED,
        ),
    ]
}
