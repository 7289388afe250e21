//! Divides a decision that is too long for one answer into pages.
//!
//! After the plans of a page have ended, the host asks for the next page. The
//! guest then decides again, from the current state of the cluster. The cursor
//! names the first command or plan that no page contained yet. A page skips
//! everything before the cursor, whether the cluster shows its effect or not.
//! So a dry run ends, and failed plans do not delay the plans after them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{Command, Decision, Enqueue, Measure, Plan, Step, Verdict, WorkItem};

/// How many plans the host accepts in one decision. A decision with more is
/// divided into pages.
pub const MAX_PLANS: usize = 10_000;

/// How many commands the host accepts in one decision.
pub const MAX_COMMANDS: usize = 10_000;

/// How many bytes a text of a decision may have that identifies something: a key, a group,
/// a field of an [`ObjectRef`](crate::ObjectRef). The host refuses an answer with a longer
/// one.
pub const MAX_IDENTITY_BYTES: usize = 1024;

/// How many bytes an answer may have. The host accepts 16 MiB; the rest covers
/// what is not counted here.
const MAX_BYTES: usize = 15 << 20;

/// The size of the parts of a decision in the host: never less than there, so
/// that an answer that fits by this count fits.
mod size {
    pub(super) const DECISION: usize = 128;
    pub(super) const PLAN: usize = 320;
    pub(super) const STEP: usize = 128;
    pub(super) const COMMAND: usize = 144;
    pub(super) const MEASURE: usize = 128;
    pub(super) const LABEL: usize = 24;
}

/// Divides the decisions so that each one, and all of them together, fit into
/// an answer.
pub(crate) fn fitting(items: &[WorkItem], decisions: Vec<Decision>) -> Vec<Decision> {
    // The host reports this mistake.
    if items.len() != decisions.len() {
        return decisions;
    }
    let mut answer = Answer {
        bytes: 0,
        is_empty: true,
    };
    let both = items.iter().zip(decisions);
    both.map(|(item, decision)| answer.page(item, decision))
        .collect()
}

/// What the answer contains so far.
struct Answer {
    bytes: usize,
    is_empty: bool,
}

impl Answer {
    /// The decision, or the page of it that starts at the item's cursor and
    /// fits into the answer.
    fn page(&mut self, item: &WorkItem, decision: Decision) -> Decision {
        self.bytes += size::DECISION;
        let plans = decision.plans.iter().map(plan_bytes);
        let commands = decision.commands.iter().map(command_bytes);
        let bytes: usize = plans.chain(commands).sum();
        let fits = decision.plans.len() <= MAX_PLANS
            && decision.commands.len() <= MAX_COMMANDS
            && self.bytes + bytes <= MAX_BYTES;
        if fits && item.cursor.is_empty() {
            self.bytes += bytes;
            self.is_empty &= bytes == 0;
            return decision;
        }
        self.cut(item, decision)
    }

    fn cut(&mut self, item: &WorkItem, decision: Decision) -> Decision {
        let mut page = Decision {
            plans: Vec::new(),
            commands: Vec::new(),
            ..decision
        };
        let pieces = pieces(decision.plans, decision.commands);
        let start = position(&pieces, &item.cursor).unwrap_or_default();
        let mut seen = BTreeMap::new();
        for (position, piece) in pieces.into_iter().enumerate() {
            let cursor = cursor(&piece, &mut seen);
            if position < start {
                continue;
            }
            if !self.has_room(&page, &piece) {
                page.verdict = Verdict::ContinueFrom(cursor);
                return page;
            }
            self.bytes += piece.bytes();
            self.is_empty = false;
            page.plans.extend(piece.plans);
            page.commands.extend(piece.commands);
        }
        page
    }

    /// A single piece may be too large even for an answer of its own. It is
    /// answered all the same, so that the host refuses it: without it, the plan
    /// would be lost.
    fn has_room(&self, page: &Decision, piece: &Piece) -> bool {
        self.is_empty
            || (page.plans.len() + piece.plans.len() <= MAX_PLANS
                && page.commands.len() + piece.commands.len() <= MAX_COMMANDS
                && self.bytes + piece.bytes() <= MAX_BYTES)
    }
}

/// What must be on one page: successive commands for one item of a queue, with
/// the plans that depend on its cancellation; or one plan.
#[derive(Default)]
struct Piece {
    commands: Vec<Command>,
    plans: Vec<Plan>,
}

impl Piece {
    fn bytes(&self) -> usize {
        let commands = self.commands.iter().map(command_bytes);
        commands.chain(self.plans.iter().map(plan_bytes)).sum()
    }
}

/// Commands first, as the host executes them; both in their order.
fn pieces(plans: Vec<Plan>, commands: Vec<Command>) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::with_capacity(plans.len() + commands.len());
    let mut cancels = BTreeMap::new();
    for command in commands {
        let follows = pieces.last().is_some_and(|piece| {
            let last = piece.commands.last().and_then(subject);
            last.is_some() && last == subject(&command)
        });
        if let Command::Cancel(item) = &command {
            let position = pieces.len() - usize::from(follows);
            cancels.insert((item.queue.clone(), item.key.clone()), position);
        }
        match pieces.last_mut().filter(|_| follows) {
            Some(piece) => piece.commands.push(command),
            None => pieces.push(Piece {
                commands: vec![command],
                ..Piece::default()
            }),
        }
    }
    for plan in plans {
        let condition = plan.when_cancelled.as_ref();
        let condition = condition.map(|item| (item.queue.clone(), item.key.clone()));
        let position = condition.and_then(|item| cancels.get(&item));
        match position.and_then(|position| pieces.get_mut(*position)) {
            Some(piece) => piece.plans.push(plan),
            None => pieces.push(Piece {
                plans: vec![plan],
                ..Piece::default()
            }),
        }
    }
    pieces
}

/// The item of a queue that a command is for.
fn subject(command: &Command) -> Option<(&str, &str)> {
    match command {
        Command::Enqueue(it) => Some((&it.queue, &it.key)),
        Command::Cancel(it) => Some((&it.queue, &it.key)),
        Command::SetRate(_) | Command::SetNote(_) | Command::Measure(_) => None,
    }
}

/// The position of the piece that a cursor names; none if the decision no
/// longer contains it. Then the decision starts from the beginning: what was
/// executed of it is no longer in the decision either, or the host knows of it.
fn position(pieces: &[Piece], wanted: &str) -> Option<usize> {
    let mut seen = BTreeMap::new();
    let mut cursors = pieces.iter().map(|piece| cursor(piece, &mut seen));
    cursors.position(|cursor| cursor == wanted)
}

/// Names a piece by its subject, and by the number of such pieces before it.
fn cursor(piece: &Piece, seen: &mut BTreeMap<u64, u32>) -> String {
    let mut hasher = DefaultHasher::new();
    match (piece.commands.first(), piece.plans.first()) {
        (Some(command), _) => identify(command, &mut hasher),
        (None, Some(plan)) => {
            let target = &plan.target;
            (&target.uid, &target.name, &plan.reason).hash(&mut hasher);
        }
        (None, None) => {}
    }
    let identity = hasher.finish();
    let same = seen.entry(identity).or_default();
    *same += 1;
    format!("{identity:016x}.{same}")
}

fn identify(command: &Command, hasher: &mut DefaultHasher) {
    match command {
        Command::Enqueue(it) => ("enqueue", &it.queue, &it.key).hash(hasher),
        Command::Cancel(it) => ("cancel", &it.queue, &it.key).hash(hasher),
        Command::SetRate(it) => ("set-rate", &it.queue, &it.group).hash(hasher),
        Command::SetNote(it) => ("set-note", &it.key).hash(hasher),
        Command::Measure(it) => ("measure", &it.metric, &it.labels).hash(hasher),
    }
}

fn plan_bytes(plan: &Plan) -> usize {
    let target = &plan.target;
    let names = [
        &target.api_version,
        &target.kind,
        &target.namespace,
        &target.name,
        &target.uid,
        &plan.reason,
        &plan.message,
    ];
    let condition = plan.when_cancelled.as_ref();
    let condition = condition.map_or(0, |item| item.queue.len() + item.key.len());
    let measures = plan.measures.iter();
    let measures = measures.map(|it| it.when.len() + measure_bytes(&it.measure));
    let steps = plan.steps.iter().map(step_bytes);
    let texts: usize = steps.chain(measures).chain(names.map(String::len)).sum();
    size::PLAN + condition + texts
}

fn step_bytes(step: &Step) -> usize {
    let texts = match step {
        Step::Patch(it) => it.kind.len() + it.subresource.len() + it.body.len(),
        Step::Delete(it) | Step::Evict(it) => {
            it.resource_version.len() + it.propagation_policy.len()
        }
        Step::Create(it) => it.body.len(),
        Step::Event(it) => {
            it.event_type.len() + it.reason.len() + it.message.len() + it.component.len()
        }
    };
    size::STEP + texts
}

fn command_bytes(command: &Command) -> usize {
    let texts = match command {
        Command::Enqueue(Enqueue {
            queue, key, group, ..
        }) => queue.len() + key.len() + group.len(),
        Command::Cancel(it) => it.queue.len() + it.key.len(),
        Command::SetRate(it) => it.queue.len() + it.group.len(),
        Command::SetNote(it) => it.key.len() + it.value.as_ref().map_or(0, Vec::len),
        Command::Measure(it) => measure_bytes(it),
    };
    size::COMMAND + texts
}

fn measure_bytes(measure: &Measure) -> usize {
    let labels = measure.labels.iter().map(|it| size::LABEL + it.len());
    size::MEASURE + measure.metric.len() + labels.sum::<usize>()
}

#[cfg(test)]
mod tests;
