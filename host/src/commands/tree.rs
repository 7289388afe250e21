//! The rollout of a Controller as a tree.

use jiff::Timestamp;
use kube::ResourceExt as _;
use kube::core::DynamicObject;
use serde_json::Value;

use super::print::{age, part, span, text_at};
use super::stop::STOPPED;
use davit_core::api::ControllerSpec;
use davit_core::api::StepConfig;
use davit_core::api::{
    CandidateStatus, ConditionStatus, ControllerStatus, RequestResult, RevisionStatus,
};
use davit_core::untrusted;

/// How much of the reason of a stop is printed, in bytes.
const MAX_REASON: usize = 1000;

/// A line and its children.
struct Node {
    text: String,
    children: Vec<Node>,
}

impl Node {
    fn new(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            children: Vec::new(),
        }
    }

    fn with(text: impl Into<String>, children: Vec<Self>) -> Self {
        Self {
            children,
            ..Self::new(text)
        }
    }

    fn draw(&self, lines: &mut Vec<String>, first: &str, rest: &str) {
        lines.push(format!("{first}{}", self.text));
        let last = self.children.len().saturating_sub(1);
        for (position, child) in self.children.iter().enumerate() {
            let (branch, trunk) = if position == last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            child.draw(lines, &format!("{rest}{branch}"), &format!("{rest}{trunk}"));
        }
    }
}

/// A Controller and its rollout as plain text. `wide` shows digests, values and
/// times in full.
pub(super) fn draw(
    object: &DynamicObject,
    status: &ControllerStatus,
    now: Timestamp,
    wide: bool,
) -> String {
    let view = View {
        spec: ControllerSpec::read(part(&object.data, "/spec")).ok(),
        raw: part(&object.data, "/spec"),
        status,
        stopped: object.annotations().get(STOPPED).map(String::as_str),
        now,
        wide,
    };
    let name = object.metadata.name.as_deref().unwrap_or_default();
    let mut lines = view.head(name);
    lines.push(String::new());
    Node::with(format!("controller {name}"), view.branches()).draw(&mut lines, "", "");
    lines.join("\n")
}

struct View<'a> {
    /// None if it is not valid: the conditions have the reason.
    spec: Option<ControllerSpec>,
    raw: &'a Value,
    status: &'a ControllerStatus,
    /// When, by whom and why `davit stop` has stopped it.
    stopped: Option<&'a str>,
    now: Timestamp,
    wide: bool,
}

impl View<'_> {
    fn head(&self, name: &str) -> Vec<String> {
        let module = self.spec.as_ref().map_or_else(String::new, |spec| {
            let pinned = spec.module.digest;
            let pinned =
                pinned.map(|digest| format!(", pinned to {}", self.digest(&digest.to_string())));
            format!("{}{}", spec.module.source, pinned.unwrap_or_default())
        });
        let mode = text_at(self.raw, "/mode");
        let paused = self.raw.pointer("/rollout/paused") == Some(&Value::Bool(true));
        let mut facts = vec![
            ("Name", name.to_owned()),
            ("Mode", mode.to_owned()),
            ("Module", module),
            ("Status", self.status.summary.clone()),
        ];
        if let Some(stopped) = self.stopped {
            let stopped = untrusted::line(stopped, MAX_REASON);
            facts.push(("Stopped", format!("{stopped} (davit start restores it)")));
        }
        if paused {
            facts.push(("Paused", "yes: davit resume ends the pause".to_owned()));
        }
        if self.status.observed_generation.is_none() {
            facts.push(("Host", "no host has run this Controller yet".to_owned()));
        }
        let lines = facts.into_iter();
        lines
            .map(|(title, fact)| {
                format!("{:9}{fact}", format!("{title}:"))
                    .trim_end()
                    .to_owned()
            })
            .collect()
    }

    fn branches(&self) -> Vec<Node> {
        let status = self.status;
        let mut branches = Vec::new();
        match &status.stable {
            Some(stable) => branches.push(self.stable(stable)),
            None => branches.push(Node::new("stable: none yet")),
        }
        match &status.candidate {
            Some(candidate) => branches.push(self.candidate(candidate)),
            None => branches.extend(self.planned()),
        }
        if let Some(rejected) = &status.rejected {
            branches.push(Node::with(
                format!(
                    "rejected {} in step {}, {}",
                    rejected.revision,
                    rejected.step,
                    self.ago(&rejected.at)
                ),
                vec![Node::new(format!("reason: {}", rejected.reason))],
            ));
        }
        branches.extend(self.guardrails());
        branches.extend(self.reports());
        branches.extend(self.requests());
        branches.extend(self.conditions());
        branches
    }

    /// What the guest reports.
    fn reports(&self) -> Option<Node> {
        let reports = self.status.reports.iter().map(|one| {
            let times = match one.count {
                0 => String::new(),
                1 => " (once)".to_owned(),
                count => format!(" ({count} times)"),
            };
            Node::new(format!("{}{times}: {}", one.name, one.message))
        });
        let reports: Vec<Node> = reports.collect();
        (!reports.is_empty()).then(|| Node::with("reports of the guest", reports))
    }

    fn stable(&self, stable: &RevisionStatus) -> Node {
        let mut children = self.made_of(&stable.digest, &stable.config_hash);
        if let Some(lost) = &self.status.lost {
            children.push(Node::new(format!(
                "lost, {}: {}",
                self.ago(&lost.since),
                lost.reason
            )));
            children.extend(lost.ready.iter().map(|ready| {
                Node::new(format!(
                    "{ready} is ready: davit promote --full abandons the lost revision"
                ))
            }));
        }
        let since = self.ago(&stable.since);
        Node::with(format!("stable {}, {since}", stable.revision), children)
    }

    fn candidate(&self, candidate: &CandidateStatus) -> Node {
        let mut children = self.made_of(&candidate.digest, &candidate.config_hash);
        children.push(Node::with(
            format!("step {} of {}", candidate.step, candidate.steps),
            self.steps(candidate),
        ));
        children.push(self.comparison(candidate));
        let (calls, writes) = (candidate.failed_calls, candidate.refused_writes);
        let analysis = self.spec.as_ref().map(|spec| &spec.rollout.analysis);
        let allowed =
            |most: Option<u64>| most.map_or_else(String::new, |most| format!(" ({most} allowed)"));
        children.push(Node::new(format!(
            "failed calls: {calls}{}, refused writes: {writes}{}",
            allowed(analysis.map(|one| one.max_failed_calls)),
            allowed(analysis.map(|one| one.max_refused_writes)),
        )));
        let since = self.ago(&candidate.since);
        let text = format!(
            "candidate {}, {since}, owns {} %",
            candidate.revision, candidate.weight
        );
        Node::with(text, children)
    }

    /// The steps: done, current, next.
    fn steps(&self, candidate: &CandidateStatus) -> Vec<Node> {
        let steps = self.spec.as_ref().map(|spec| &spec.rollout.steps);
        let Some(steps) = steps.filter(|steps| !steps.is_empty()) else {
            return vec![Node::new(format!("[current] {}", candidate.step_text))];
        };
        // If the spec has fewer steps by now, the last one is the current one.
        let current = (candidate.step as usize).clamp(1, steps.len());
        let lines = steps.iter().enumerate().map(|(index, step)| {
            let number = index + 1;
            let line = |state: &str| format!("{state:9} {number}. {step}");
            Node::new(match number.cmp(&current) {
                std::cmp::Ordering::Less => line("[done]"),
                std::cmp::Ordering::Greater => line("[next]"),
                std::cmp::Ordering::Equal => {
                    format!("{}: {}", line("[current]"), progress(step, candidate))
                }
            })
        });
        lines.collect()
    }

    /// The steps of the next candidate.
    fn planned(&self) -> Option<Node> {
        let steps = &self.spec.as_ref()?.rollout.steps;
        let lines = steps.iter().enumerate();
        let lines = lines.map(|(index, step)| Node::new(format!("{}. {step}", index + 1)));
        let lines: Vec<Node> = lines.collect();
        (!lines.is_empty()).then(|| Node::with("steps of the next candidate", lines))
    }

    fn comparison(&self, candidate: &CandidateStatus) -> Node {
        let counts = &candidate.comparison;
        let compared = counts.agree + counts.disagree;
        let least = self.spec.as_ref();
        let least = least.map_or_else(String::new, |spec| {
            format!(" of at least {}", spec.rollout.analysis.min_decisions)
        });
        Node::with(
            format!("compared in this step: {compared}{least}"),
            vec![
                Node::new(format!("agree: {}", counts.agree)),
                Node::new(format!(
                    "disagree: {} ({} only-stable, {} only-candidate, {} different)",
                    counts.disagree, counts.only_stable, counts.only_candidate, counts.different
                )),
                Node::new(format!("unknown: {}", counts.unknown)),
            ],
        )
    }

    fn guardrails(&self) -> Option<Node> {
        let guardrails = self.raw.get("guardrails").and_then(Value::as_object);
        let limits = guardrails.into_iter().flatten();
        let lines = limits.map(|(field, limit)| {
            let mut tripped = self.status.tripped.iter();
            let limit = limit
                .as_str()
                .map_or_else(|| limit.to_string(), str::to_owned);
            match tripped.find(|tripped| tripped.guardrail == *field) {
                None => Node::new(format!("{field}: {limit}")),
                Some(tripped) => {
                    let until = match &tripped.until {
                        Some(until) => format!("until {until}, or until davit reset"),
                        None => "until davit reset".to_owned(),
                    };
                    let since = self.ago(&tripped.since);
                    Node::new(format!(
                        "{field}: {limit}, TRIPPED {since}: plans wait {until}"
                    ))
                }
            }
        });
        let lines: Vec<Node> = lines.collect();
        (!lines.is_empty()).then(|| Node::with("guardrails", lines))
    }

    fn requests(&self) -> Option<Node> {
        let lines = self.status.requests.iter().map(|answer| {
            let result = match answer.result {
                RequestResult::Done => "done",
                RequestResult::Refused => "REFUSED",
                RequestResult::Pending => "pending",
            };
            let value = if self.wide {
                format!(" {}", answer.value)
            } else {
                String::new()
            };
            let at = self.ago(&answer.at);
            let (request, message) = (&answer.request, &answer.message);
            Node::new(format!("{request}{value}: {result}, {at}: {message}"))
        });
        let lines: Vec<Node> = lines.collect();
        (!lines.is_empty()).then(|| Node::with("requests", lines))
    }

    fn conditions(&self) -> Option<Node> {
        let width = |part: fn(&ConditionStatus) -> &String| {
            let parts = self.status.conditions.iter().map(part);
            parts.map(|part| part.chars().count()).max().unwrap_or(0)
        };
        let (types, reasons) = (width(|one| &one.type_), width(|one| &one.reason));
        let lines = self.status.conditions.iter().map(|condition| {
            let ConditionStatus {
                type_,
                status,
                reason,
                message,
                last_transition_time,
                ..
            } = condition;
            let mut line = format!("{type_:types$}  {status:7}  {reason:reasons$}  {message}");
            if self.wide {
                line = format!("{} ({})", line.trim_end(), self.ago(last_transition_time));
            }
            Node::new(line.trim_end())
        });
        let lines: Vec<Node> = lines.collect();
        (!lines.is_empty()).then(|| Node::with("conditions", lines))
    }

    fn made_of(&self, digest: &str, config_hash: &str) -> Vec<Node> {
        let digest = self.digest(digest.trim_start_matches("sha256:"));
        vec![Node::new(format!("module {digest}, config {config_hash}"))]
    }

    fn digest(&self, digest: &str) -> String {
        if self.wide {
            format!("sha256:{digest}")
        } else {
            format!("sha256:{digest:.12}")
        }
    }

    fn ago(&self, time: &str) -> String {
        let age = age(time, self.now);
        if self.wide {
            format!("{age} ago ({time})")
        } else {
            format!("{age} ago")
        }
    }
}

/// The progress of the current step, and what it waits for.
fn progress(step: &StepConfig, candidate: &CandidateStatus) -> String {
    let elapsed = candidate.elapsed_seconds;
    let waits = match candidate.waits_for.as_str() {
        "" => String::new(),
        waits => format!("; waits for: {waits}"),
    };
    match step.0.lasts {
        None => format!("{} so far{waits}", span(elapsed)),
        Some(lasts) => {
            let (lasts, left) = (lasts.as_secs(), lasts.as_secs().saturating_sub(elapsed));
            format!(
                "{} of {}, {} left{waits}",
                span(elapsed),
                span(lasts),
                span(left)
            )
        }
    }
}
