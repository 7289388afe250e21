//! How much a call reads from the API server: the host fails one that reads too much.

use crate::config::Proof;
use crate::rule::Rule;

/// How many live reads a call may have: the host's limit is 10,000.
pub(crate) const LIVE_READS: usize = 9000;

/// How many of them may be of the objects that a rule keeps, so that some are left for its acts.
const READS_OF_KEPT: usize = 6750;
/// How many objects a rule may keep that are read from the API server.
const MAX_KEPT: usize = 2000;
/// How many objects of a group one call acts on.
const MAX_ACTS: usize = 1000;

impl Rule {
    /// How many objects it may keep, if it reads them.
    pub(crate) fn most_kept(&self) -> usize {
        MAX_KEPT.min(READS_OF_KEPT / self.reads_of_proof())
    }

    /// How many objects of a group one call acts on.
    pub(crate) fn most_acts(&self) -> usize {
        match self.proof {
            Proof::Cache => MAX_ACTS,
            Proof::Live => {
                let left = LIVE_READS.saturating_sub(self.reads_of_kept());
                MAX_ACTS.min(left / self.reads_of_proof())
            }
        }
    }

    /// How many live reads it may need for one object, or for one group of them if it keeps some.
    pub(crate) fn most_reads(&self) -> usize {
        let acts = if self.keep.is_some() {
            self.most_acts()
        } else {
            1
        };
        match self.proof {
            Proof::Cache => self.reads_of_kept(),
            Proof::Live => self.reads_of_kept() + acts * self.reads_of_proof(),
        }
    }

    fn reads_of_kept(&self) -> usize {
        let kept = self.keep.as_ref().filter(|_| self.proves_kept);
        kept.map_or(0, |keep| keep.count * self.reads_of_proof())
    }

    /// The reads of an object, its namespace, and what is related to it.
    fn reads_of_proof(&self) -> usize {
        1 + self.related.len() + usize::from(self.matches.namespace_selector.is_some())
    }
}
