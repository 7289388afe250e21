//! Reviews of the service accounts of controllers: whether each may list and watch what
//! the guests of its controller read from the cache, and whether the host may impersonate
//! it.
//!
//! The host opens a watch with its own account, for all controllers. A revision runs only
//! if the account of its controller may open that watch too. Live reads and writes are made
//! as the account, so a revision that makes some runs only if the host may impersonate it.
//! The API server is asked before a revision starts, and regularly afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use crate::account::Account;
use crate::request::review::{AccessReview, ReviewAnswer};
use crate::time::Instant;

/// How long an allowed permission is not reviewed again.
const ALLOWED: Duration = Duration::from_mins(5);
/// The same for a denied one, for which a revision waits.
const DENIED: Duration = Duration::from_secs(30);
/// The first pause after a failed review. The pauses double.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// The longest pause after a failed review.
const LONGEST_RETRY: Duration = Duration::from_mins(1);
/// The least time between two reviews of a permission: refused requests hasten a review,
/// and some are refused again and again.
const LEAST_PAUSE: Duration = Duration::from_secs(10);

/// Identifies a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ReviewId(pub u64);

/// What the host knows about each permission that it reviews.
pub(super) type Answers = BTreeMap<AccessReview, Knowledge>;

/// What the host knows about a permission.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge {
    /// The last answer; none before the first one.
    pub(super) answer: Option<ReviewAnswer>,
    /// Why the API server gave no other answer since then.
    pub(super) failure: Option<String>,
}

/// The reviews of all controllers.
#[derive(Debug, Default)]
pub(super) struct Reviews {
    /// The number of controllers whose needs are reviewed.
    pub(super) controllers: usize,
    schedule: BTreeMap<AccessReview, Schedule>,
    known: Arc<Answers>,
}

/// When a permission is reviewed.
#[derive(Debug)]
struct Schedule {
    /// The review under way.
    under_way: Option<ReviewId>,
    /// When the last review was sent.
    asked_at: Option<Instant>,
    /// When the next one is due, unless one is under way.
    due: Instant,
    /// Whether a request was refused since the last review was sent.
    is_in_doubt: bool,
    /// The number of reviews.
    count: u64,
    /// The number of failed reviews in a row.
    failures: u32,
}

impl Reviews {
    /// What is known, for the controllers.
    pub(super) fn known(&self) -> &Arc<Answers> {
        &self.known
    }

    /// Reviews these permissions and no others. New ones are due immediately.
    pub(super) fn follow(&mut self, needed: &BTreeSet<&AccessReview>, now: Instant) {
        if self.schedule.keys().eq(needed.iter().copied()) {
            return;
        }
        self.schedule.retain(|review, _| needed.contains(review));
        let known = Arc::make_mut(&mut self.known);
        known.retain(|review, _| needed.contains(review));
        for review in needed {
            known.entry((*review).clone()).or_default();
            self.schedule.entry((*review).clone()).or_insert(Schedule {
                under_way: None,
                asked_at: None,
                due: now,
                is_in_doubt: false,
                count: 0,
                failures: 0,
            });
        }
    }

    /// The API server refused a request of this account: its permissions are reviewed soon.
    pub(super) fn doubt(&mut self, account: &Account) {
        for (review, schedule) in &mut self.schedule {
            schedule.is_in_doubt |= review.account() == account;
        }
    }

    /// The reviews that are due, each with its id.
    pub(super) fn due(
        &mut self,
        now: Instant,
        mut id: impl FnMut() -> ReviewId,
    ) -> Vec<(ReviewId, AccessReview)> {
        let due = self.schedule.iter_mut().filter(|(_, one)| one.is_due(now));
        let due = due.map(|(review, schedule)| {
            let id = id();
            schedule.under_way = Some(id);
            schedule.asked_at = Some(now);
            schedule.is_in_doubt = false;
            schedule.count += 1;
            (id, review.clone())
        });
        due.collect()
    }

    /// Handles the result of a review. Returns the account that it is about; none if the
    /// review is not needed any more.
    pub(super) fn handle(
        &mut self,
        id: ReviewId,
        result: Result<ReviewAnswer, String>,
        now: Instant,
    ) -> Option<Account> {
        let mut all = self.schedule.iter_mut();
        let (review, schedule) = all.find(|(_, one)| one.under_way == Some(id))?;
        schedule.under_way = None;
        let before = self.known.get(review).cloned().unwrap_or_default();
        let knowledge = match result {
            Ok(answer) => {
                schedule.failures = 0;
                let pause = match answer {
                    ReviewAnswer::Allowed => ALLOWED,
                    ReviewAnswer::Denied { .. } => DENIED,
                };
                schedule.due = now.after(spread(pause, review, schedule.count));
                Knowledge {
                    answer: Some(answer),
                    failure: None,
                }
            }
            // What is unknown is not taken for denied.
            Err(failure) => {
                let doubled = FIRST_RETRY * 2_u32.pow(schedule.failures.min(10));
                let pause = doubled.min(LONGEST_RETRY);
                schedule.failures += 1;
                schedule.due = now.after(spread(pause, review, schedule.count));
                Knowledge {
                    answer: before.answer.clone(),
                    failure: Some(failure),
                }
            }
        };
        if knowledge != before {
            Arc::make_mut(&mut self.known).insert(review.clone(), knowledge);
        }
        Some(review.account().clone())
    }
}

impl Schedule {
    fn is_due(&self, now: Instant) -> bool {
        let rests = |at: Instant| now.since(at) < LEAST_PAUSE;
        let in_doubt = self.is_in_doubt && !self.asked_at.is_some_and(rests);
        self.under_way.is_none() && (self.due <= now || in_doubt)
    }
}

/// Four fifths to all of a pause, so that not all reviews are sent at the same time.
fn spread(pause: Duration, review: &AccessReview, count: u64) -> Duration {
    let mut hash = DefaultHasher::new();
    (review.to_string(), review.account().to_string(), count).hash(&mut hash);
    let share = u32::try_from(hash.finish() % 200).unwrap_or_default();
    pause * (1000 - share) / 1000
}
