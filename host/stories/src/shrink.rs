//! Shortens a failing story: drops every step without which the story still fails in the
//! same way.

use crate::event::Event;
use crate::plot::Plot;
use crate::problem::Problem;
use crate::step::Step;
use crate::story::run;

/// The plot of the shortest story found whose first problem is of the same kind.
pub(crate) fn shrink(plot: &Plot, problem: &Problem) -> Plot {
    let mut best = plot.clone();
    let mut size = best.steps.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.steps.len() {
            let mut shorter = best.clone();
            let end = (at + size).min(shorter.steps.len());
            // The checks after the rest assume a rest.
            let dropped: Vec<Step> = shorter.steps.drain(at..end).collect();
            let rests = dropped.iter().any(|step| matches!(step.event, Event::Rest));
            if !rests && fails(&shorter, problem) {
                best = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    best
}

fn fails(plot: &Plot, problem: &Problem) -> bool {
    let problems = run(plot, false).problems;
    problems
        .first()
        .is_some_and(|first| first.kind() == problem.kind())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::event::Bug;

    #[test]
    fn a_shorter_story_has_no_other_problem() {
        let step = |event| Step {
            event,
            pause: Duration::from_secs(1),
        };
        let steps = [
            Event::Bug(Bug::Panic),
            Event::Taint(0),
            Event::Bug(Bug::Violation),
            Event::Rest,
        ];
        let plot = Plot {
            seed: 1,
            hosts: 1,
            elects: false,
            replays: false,
            steps: steps.map(step).into(),
        };
        let problems = run(&plot, false).problems;
        assert!(problems[0].kind().starts_with("panic at "), "{problems:?}");
        let shorter = shrink(&plot, &problems[0]);
        let left: Vec<String> = shorter
            .steps
            .iter()
            .map(|one| one.event.to_string())
            .collect();
        assert_eq!(
            left,
            [Event::Bug(Bug::Panic).to_string(), Event::Rest.to_string()]
        );
    }
}
