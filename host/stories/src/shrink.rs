//! Shortens a failing story: drops every step without which the story still fails.

use crate::step::{Event, Step};
use crate::story::run;

/// The steps of the shortest story found that still fails.
pub(crate) fn shrink(seed: u64, steps: &[Step]) -> Vec<Step> {
    let mut best = steps.to_vec();
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let mut shorter = best.clone();
            let end = (at + size).min(shorter.len());
            // The checks after the rest assume a rest.
            let dropped: Vec<Step> = shorter.drain(at..end).collect();
            let rests = dropped.iter().any(|step| matches!(step.event, Event::Rest));
            if !rests && fails(seed, &shorter) {
                best = shorter;
            } else {
                at += size;
            }
        }
        size /= 2;
    }
    best
}

fn fails(seed: u64, steps: &[Step]) -> bool {
    run(seed, steps, false).is_ok_and(|ending| !ending.problems.is_empty())
}
