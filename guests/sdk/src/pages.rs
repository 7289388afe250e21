//! Decisions that are longer than one answer may be: they are answered in parts.
//!
//! The host asks for the next part when the plans of the last have ended. The
//! guest then decides afresh, from what the cluster is like by then, and the
//! cursor names the first command or plan that no part has had yet. Everything
//! before it has had its turn, whether it shows in the cluster or not: so a dry
//! run comes to an end, and plans that fail keep nothing from those after them.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use crate::{Command, Decision, Enqueue, Measure, Plan, Step, Verdict, WorkItem};

/// How many plans the host takes in one decision. A decision may have more: it
/// is carried out in parts.
pub const MAX_PLANS: usize = 10_000;

/// How many commands the host takes in one decision.
pub const MAX_COMMANDS: usize = 10_000;

/// How many bytes an answer may have in the host, which takes 16 MiB; what is
/// not counted here needs little.
const MAX_BYTES: usize = 15 << 20;

/// What the parts of a decision have in the host: never less than there, so
/// that an answer that fits by this count fits.
mod size {
    pub(super) const DECISION: usize = 128;
    pub(super) const PLAN: usize = 320;
    pub(super) const STEP: usize = 128;
    pub(super) const COMMAND: usize = 144;
    pub(super) const MEASURE: usize = 128;
    pub(super) const LABEL: usize = 24;
}

/// Makes every decision short enough for the host, and all of them together.
pub(crate) fn fitting(items: &[WorkItem], decisions: Vec<Decision>) -> Vec<Decision> {
    // The host finds the mistake.
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

/// What an answer has so far.
struct Answer {
    bytes: usize,
    is_empty: bool,
}

impl Answer {
    /// The decision, or as much of it from the item's cursor on as there is room
    /// for.
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

    /// A single piece that is too much even for an answer of its own is for the
    /// host to refuse: left out, it would be lost.
    fn has_room(&self, page: &Decision, piece: &Piece) -> bool {
        self.is_empty
            || (page.plans.len() + piece.plans.len() <= MAX_PLANS
                && page.commands.len() + piece.commands.len() <= MAX_COMMANDS
                && self.bytes + piece.bytes() <= MAX_BYTES)
    }
}

/// What belongs into one part: commands that follow one another about one item
/// of a queue, with the plans that depend on its cancellation; or one plan.
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

/// Commands first, as the host carries them out; both in their order.
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

/// The item of a queue that a command is about.
fn subject(command: &Command) -> Option<(&str, &str)> {
    match command {
        Command::Enqueue(it) => Some((&it.queue, &it.key)),
        Command::Cancel(it) => Some((&it.queue, &it.key)),
        Command::SetRate(_) | Command::SetNote(_) | Command::Measure(_) => None,
    }
}

/// Where the piece is that a cursor names; none if it is no longer wanted. Then
/// the decision starts from the beginning: what was done of it is not wanted
/// any more either, or is known to the host.
fn position(pieces: &[Piece], wanted: &str) -> Option<usize> {
    let mut seen = BTreeMap::new();
    let mut cursors = pieces.iter().map(|piece| cursor(piece, &mut seen));
    cursors.position(|cursor| cursor == wanted)
}

/// Names a piece by what it is about, and by how many such pieces are before it.
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
