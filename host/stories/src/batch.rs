//! Runs the stories of many seeds, on every processor.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use anyhow::Result;

use crate::plot::{Plot, Size};
use crate::problem::Problem;
use crate::story::{self, Counts, Ending};

/// A story that failed.
#[derive(Debug)]
pub(crate) struct FailedStory {
    pub(crate) seed: u64,
    pub(crate) problems: Vec<Problem>,
}

/// Runs the stories of all seeds until `enough` of them failed. Returns the failed stories,
/// and how often everything happened.
pub(crate) fn run(
    seeds: &Range<u64>,
    size: Size,
    enough: usize,
) -> Result<(Vec<FailedStory>, Counts)> {
    let next = AtomicU64::new(seeds.start);
    let failed = Mutex::new(Vec::new());
    let counts = Mutex::new(Counts::default());
    let threads = thread::available_parallelism()?.get();
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds.end {
                        return;
                    }
                    let ending = run_seed(seed, size);
                    let mut all = counts.lock().unwrap_or_else(PoisonError::into_inner);
                    all.add(&ending.counts);
                    drop(all);
                    if !ending.problems.is_empty() {
                        let mut failed = failed.lock().unwrap_or_else(PoisonError::into_inner);
                        let problems = ending.problems;
                        failed.push(FailedStory { seed, problems });
                        if failed.len() >= enough {
                            next.store(seeds.end, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    let mut failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    failed.sort_by_key(|story| story.seed);
    let counts = counts.into_inner();
    Ok((failed, counts.unwrap_or_else(PoisonError::into_inner)))
}

/// Runs the story of a seed.
pub(crate) fn run_seed(seed: u64, size: Size) -> Ending {
    story::run(&Plot::draw(seed, size), false)
}
