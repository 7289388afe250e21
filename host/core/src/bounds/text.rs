//! Text of a guest, cut where it enters the core.
//!
//! Everything that a guest says is one line of bounded length from there on. A text that
//! is too long is cut and ends with `…`; it fails nothing. A text that identifies
//! something cannot be cut: an answer with one that is too long is refused.

use crate::object::ObjectRef;
use crate::plan::{Command, Measure, Plan, QueueKey, Step, Verdict};
use crate::untrusted::{self, shorten};

/// The longest reason of a plan, in bytes.
pub const REASON: usize = 128;
/// The longest message of a plan or reason of a retry, in bytes.
pub const MESSAGE: usize = 1024;
/// The longest value of a metric's label, in bytes.
pub const LABEL: usize = 128;

/// The longest text that identifies something, in bytes: the host keeps it as it is, more
/// than once, as long as the item or the note exists. Names of Kubernetes have at most 253.
pub const IDENTITY: usize = 1024;

/// An identity, after what it is: `bytes in the key of an item`.
pub type Identity<'a> = (&'static str, &'a str);

/// The texts of a plan that identify something. The item of its condition is also in a
/// command.
pub fn identities_of_plan(plan: &Plan) -> impl Iterator<Item = Identity<'_>> {
    let steps = plan.steps.iter().flat_map(|step| {
        let (created, version) = match step {
            Step::Create(create) => (Some(identities(&create.object, CREATED)), None),
            Step::Apply(apply) => (Some(identities(&apply.object, APPLIED)), None),
            Step::Delete(options) | Step::Evict(options) => {
                let version = options.resource_version.as_str();
                (None, Some(("bytes in a resourceVersion", version)))
            }
            Step::Patch(_) | Step::Event(_) => (None, None),
        };
        created.into_iter().flatten().chain(version)
    });
    identities(&plan.target, TARGET).into_iter().chain(steps)
}

/// The texts of a command that identify something. The names of its queue and of its
/// metric are declared.
pub fn identities_of_command(command: &Command) -> impl Iterator<Item = Identity<'_>> {
    const GROUP: &str = "bytes in a group";
    let [first, second] = match command {
        Command::Enqueue(enqueue) => [
            Some(key_of(&enqueue.item)),
            Some((GROUP, enqueue.group.as_str())),
        ],
        Command::Cancel(item) => [Some(key_of(item)), None],
        Command::SetRate { group, .. } => [Some((GROUP, group.as_str())), None],
        Command::SetNote { key, .. } => [Some(("bytes in the key of a note", key.as_str())), None],
        Command::Measure(_) => [None, None],
    };
    first.into_iter().chain(second)
}

/// Names for the fields of an object's identity.
type Fields = [&'static str; 5];

const TARGET: Fields = [
    "bytes in the apiVersion of the target",
    "bytes in the kind of the target",
    "bytes in the namespace of the target",
    "bytes in the name of the target",
    "bytes in the uid of the target",
];
const CREATED: Fields = [
    "bytes in the apiVersion of the created object",
    "bytes in the kind of the created object",
    "bytes in the namespace of the created object",
    "bytes in the name of the created object",
    "bytes in the uid of the created object",
];

const APPLIED: Fields = [
    "bytes in the apiVersion of the applied object",
    "bytes in the kind of the applied object",
    "bytes in the namespace of the applied object",
    "bytes in the name of the applied object",
    "bytes in the uid of the applied object",
];

fn identities(object: &ObjectRef, names: Fields) -> [Identity<'_>; 5] {
    let ObjectRef {
        api_version,
        kind,
        namespace,
        name,
        uid,
    } = object;
    let [first, second, third, fourth, fifth] = names;
    [
        (first, api_version),
        (second, kind),
        (third, namespace),
        (fourth, name),
        (fifth, uid),
    ]
}

fn key_of(item: &QueueKey) -> Identity<'_> {
    ("bytes in the key of an item", &item.key)
}

/// Cuts the texts of a verdict that only people read.
pub fn cut_verdict(verdict: &mut Verdict) {
    if let Verdict::Retry { reason } = verdict {
        shorten(reason, MESSAGE);
    }
}

/// Cuts the texts of a command that only people read.
pub fn cut_command(command: &mut Command) {
    if let Command::Measure(measure) = command {
        cut_labels(measure);
    }
}

/// Cuts the texts of a plan that only people read.
pub fn cut_plan(plan: &mut Plan) {
    shorten(&mut plan.reason, REASON);
    shorten(&mut plan.message, MESSAGE);
    for step in &mut plan.steps {
        if let Step::Event(event) = step {
            event.cut();
        }
    }
    for measure in &mut plan.measures {
        cut_labels(&mut measure.measure);
    }
}

fn cut_labels(measure: &mut Measure) {
    for label in &mut measure.labels {
        // `region:\0:zone` is how Kubernetes names a zone.
        untrusted::cut(label, LABEL);
    }
}
