//! What is printed: what a guest decides, why, and what it decides otherwise than the build
//! before.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt::Display;
use std::sync::Arc;
use std::time::Instant;

use davit_core::controller::Outcome;
use davit_core::gate::{Ruling, WaitReason};
use davit_core::machine::Report;
use davit_core::manifest::Manifest;
use davit_core::plan::Plan;
use davit_core::untrusted::{self, MOST_LOGGED};
use davit_core::watch::Condition;

use super::builds::Builds;
use crate::commands::print::out_to_reader;
use crate::http::disagreements::{Target, step};
use crate::terminal::{BOLD, CYAN, DIM, GREEN, RED, Terminal, YELLOW};

/// How many decisions are remembered, to be printed once.
const REMEMBERED: usize = 100_000;

/// The terminal.
pub(super) struct Screen {
    started: Instant,
    terminal: Terminal,
    /// What the present revision's decisions were printed as.
    printed: RefCell<BTreeSet<String>>,
    /// The builds, if they are compared.
    builds: Option<RefCell<Builds>>,
    /// Whether a line could not be printed.
    unread: Cell<bool>,
}

impl Screen {
    /// Builds are compared by what they would do, so only if none does it.
    pub(super) fn new(compares: bool) -> Self {
        Self {
            started: Instant::now(),
            terminal: Terminal::new(),
            printed: RefCell::default(),
            builds: compares.then(RefCell::default),
            unread: Cell::new(false),
        }
    }

    /// A step of the command itself.
    pub(super) fn step(&self, text: &str) {
        self.line(CYAN, text);
    }

    /// What went wrong.
    pub(super) fn failure(&self, text: &str) {
        self.line(RED, text);
    }

    /// A report of the host.
    pub(super) fn report(&self, report: &Report) {
        if let Some(builds) = &self.builds {
            for line in builds.borrow_mut().add(report) {
                self.line(BOLD, &line);
            }
        }
        match report {
            Report::Started { manifest, .. } | Report::Promoted { manifest, .. } => {
                self.runs(manifest);
            }
            Report::Ruled { plan, ruling, .. } => self.ruled(plan, ruling),
            Report::Executed { plan, outcome, .. } => self.executed(plan, outcome),
            Report::Called {
                failure: Some(failure),
                ..
            } => {
                let (kind, said) = (failure.kind.as_str(), &failure.guest_message);
                let said = if said.is_empty() {
                    &failure.message
                } else {
                    said
                };
                self.once(RED, &format!("a call failed ({kind}): {said}"));
            }
            Report::CircuitOpened { pause, .. } => self.failure(&format!(
                "the guest is not called for {pause:?}, after five failed calls in a row"
            )),
            Report::Retried { item, reason, .. } => {
                let (queue, key) = (&item.queue, &item.key);
                self.once(YELLOW, &format!("will retry {queue}/{key}: {reason}"));
            }
            Report::ReadForbidden { failure, .. } => {
                self.once(RED, &format!("a live read is forbidden: {failure}"));
            }
            Report::NotServed { resource, .. } => self.failure(&format!(
                "the guest waits: the API server does not serve {resource}"
            )),
            Report::Stream {
                resource,
                condition: Condition::Interrupted { reason },
                warning: Some(_),
                ..
            } => self.failure(&format!(
                "the watch of {resource} was interrupted: {reason}"
            )),
            Report::DiscoveryFailed {
                failure,
                warning: Some(_),
            } => self.failure(&format!(
                "the API server's resources are not known: {failure}"
            )),
            _ => {}
        }
    }

    fn runs(&self, manifest: &Arc<Manifest>) {
        self.printed.borrow_mut().clear();
        let (name, version) = (&manifest.name, &manifest.version);
        let number = self.builds.as_ref().map(|all| all.borrow_mut().start());
        let build = number.map(|number| format!(": build {number}"));
        let build = build.unwrap_or_default();
        self.step(&format!("{name} {version} runs{build}"));
    }

    fn ruled(&self, plan: &Plan, ruling: &Ruling) {
        match ruling {
            Ruling::DryRun => self.plan(GREEN, "would", plan, ""),
            Ruling::Refuse(_) => self.plan(RED, "refused", plan, ruling),
            Ruling::Wait(WaitReason::NotServed) => self.plan(YELLOW, "waits", plan, ruling),
            // The outcome follows, or the plan is decided again.
            Ruling::Admit | Ruling::Wait(_) => {}
        }
    }

    fn executed(&self, plan: &Plan, outcome: &Outcome) {
        match &outcome.failed {
            None => self.plan(GREEN, "done", plan, ""),
            Some((_, failure)) => self.plan(RED, "failed", plan, failure),
        }
    }

    /// A plan with its reason and its steps.
    fn plan(&self, colour: &str, what: &str, plan: &Plan, because: impl Display) {
        let target = Target::from(&plan.target);
        let mut text = format!("{what:<8}{target}  {}: {}", plan.reason, plan.message);
        let because = because.to_string();
        if !because.is_empty() {
            text = format!("{text} ({because})");
        }
        let steps: Vec<String> = plan.steps.iter().map(|one| step(one).to_string()).collect();
        if !self.is_new(&format!("{text} {steps:?}")) {
            return;
        }
        self.line(colour, &text);
        for step in steps {
            let step = self.terminal.paint(DIM, &clean(&step));
            self.print(&format!("                  {step}"));
        }
    }

    /// A line that is printed once for each revision.
    fn once(&self, colour: &str, text: &str) {
        if self.is_new(text) {
            self.line(colour, text);
        }
    }

    fn is_new(&self, text: &str) -> bool {
        let mut printed = self.printed.borrow_mut();
        if printed.len() >= REMEMBERED {
            printed.clear();
        }
        printed.insert(text.to_owned())
    }

    fn line(&self, colour: &str, text: &str) {
        let seconds = self.started.elapsed().as_secs_f64();
        let time = self.terminal.paint(DIM, &format!("{seconds:>8.2}s"));
        self.print(&format!(
            "{time}  {}",
            self.terminal.paint(colour, &clean(text))
        ));
    }

    fn print(&self, line: &str) {
        if !matches!(out_to_reader(line), Ok(true)) {
            self.unread.set(true);
        }
    }

    /// Whether nobody reads any more: then the session is over, as that of any program in a pipe.
    pub(super) fn is_unread(&self) -> bool {
        self.unread.get()
    }
}

/// Text of guests and clusters on one line: no character controls the terminal.
fn clean(text: &str) -> String {
    untrusted::line(text, MOST_LOGGED)
}
