//! Shortens a failing story: drops every step without which the story still fails.

use crate::event::Event;
use crate::plot::Plot;
use crate::step::Step;
use crate::story::run;

/// The plot of the shortest story found that still fails.
pub(crate) fn shrink(plot: &Plot) -> Plot {
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
            if !rests && fails(&shorter) {
                best = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    best
}

fn fails(plot: &Plot) -> bool {
    run(plot, false).is_ok_and(|ending| !ending.problems.is_empty())
}
