//! A call that has no answer yet.

use davit_core::machine::{Call, ReadAnswer};
use davit_core::plan;

/// How many objects one call may read live: the host's `limits.live_reads`. A list counts as
/// one.
const MAX_READS: usize = 10_000;

pub(super) struct InFlight {
    pub(super) call: Box<Call<()>>,
    pub(super) answers: Vec<ReadAnswer>,
    pub(super) decisions: Vec<plan::Decision>,
}

impl InFlight {
    pub(super) fn new(call: Box<Call<()>>) -> Self {
        Self {
            call,
            answers: Vec::new(),
            decisions: Vec::new(),
        }
    }

    /// Adds the answer to a live read.
    ///
    /// # Panics
    ///
    /// If the call has read more than a host lets it read.
    pub(super) fn add(&mut self, answer: ReadAnswer) {
        self.answers.push(answer);
        let reads = self.answers.iter().map(|answer| match answer {
            ReadAnswer::Get(objects) => objects.len(),
            ReadAnswer::List(_) => 1,
        });
        assert!(
            reads.sum::<usize>() <= MAX_READS,
            "more than {MAX_READS} live reads in one call: a host fails it"
        );
    }
}
