//! Makes a story that fails short: what can be left out is left out.

use crate::step::{Event, Step};
use crate::story::tell;

/// The shortest story found that still fails, and its problems.
pub(crate) fn shrink(seed: u64, steps: &[Step]) -> Vec<Step> {
    let mut best = steps.to_vec();
    let mut size = best.len().div_ceil(2);
    while size > 0 {
        let mut at = 0;
        while at < best.len() {
            let mut shorter = best.clone();
            let end = (at + size).min(shorter.len());
            // Without the rest it would be another story.
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
    tell(seed, steps, false).is_ok_and(|ending| !ending.problems.is_empty())
}
