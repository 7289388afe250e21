//! The instances of all guests: how many may exist, and which of them are idle.
//!
//! Each guest is sure of one instance. What is left is shared: a busy guest takes more, up to its
//! own limit. So a thousand guests that are rarely called fit, and no guest can keep another one
//! from its call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::instance::Instance;
use crate::ticker::Ticker;
use crate::usage::UsageCounter;

/// How many instances are kept between calls, over all guests. To start one takes about 0.1 ms; to
/// keep one takes some 100 KiB and what its guest has allocated.
const MOST_IDLE: usize = 64;

/// What the guests of an engine share. Clones are the same.
#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    max_instances: u32,
    /// One permit for each instance that may exist.
    permits: Arc<Semaphore>,
    /// The least recently used first.
    idle: Mutex<VecDeque<Idle>>,
    last_guest: AtomicU64,
    usage: UsageCounter,
    ticker: Ticker,
}

/// The right to one instance, given back when dropped. None only if the semaphore were closed,
/// which it never is.
pub(crate) type Permit = Option<OwnedSemaphorePermit>;

/// An instance that waits for the next call of its guest.
struct Idle {
    guest: u64,
    instance: Instance,
    permit: Permit,
}

/// The part of a pool that one guest has.
pub(crate) struct Share {
    pool: Pool,
    guest: u64,
    /// The permit of the instance that it is sure of.
    own: Arc<Semaphore>,
    /// The calls that wait for it. Changed only while the idle instances are locked.
    waiting: AtomicUsize,
    _reserved: OwnedSemaphorePermit,
}

impl Pool {
    pub(crate) fn new(max_instances: u32, ticker: Ticker) -> Self {
        Self(Arc::new(Inner {
            max_instances,
            permits: Arc::new(Semaphore::new(max_instances as usize)),
            idle: Mutex::default(),
            last_guest: AtomicU64::new(0),
            usage: UsageCounter::default(),
            ticker,
        }))
    }

    pub(crate) fn max_instances(&self) -> u32 {
        self.0.max_instances
    }

    pub(crate) fn usage(&self) -> &UsageCounter {
        &self.0.usage
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.0.ticker
    }

    /// The right to one of the shared instances, at the expense of an idle one if no other is
    /// left; none if all are busy.
    pub(crate) fn shared(&self) -> Option<OwnedSemaphorePermit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.0.permits).try_acquire_owned() {
                return Some(permit);
            }
            let mut idle = self.idle();
            let is_shared =
                |permit: &OwnedSemaphorePermit| Arc::ptr_eq(permit.semaphore(), &self.0.permits);
            let oldest = idle
                .iter()
                .position(|one| one.permit.as_ref().is_some_and(is_shared))?;
            let dropped = idle.remove(oldest);
            drop(idle);
            drop(dropped);
        }
    }

    /// The share of another guest; none if nothing is left that it could be sure of.
    pub(crate) fn share(&self) -> Option<Share> {
        let reserved = self.shared()?;
        Some(Share {
            pool: self.clone(),
            guest: self.0.last_guest.fetch_add(1, Ordering::Relaxed),
            own: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
            _reserved: reserved,
        })
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// The right to an instance, with an idle one if the guest has any. Waits while the guest's
    /// own instance is busy and nothing is left of the shared ones.
    pub(crate) async fn take(&self) -> (Permit, Option<Instance>) {
        if let Some(idle) = self.take_idle(&mut self.pool.idle()) {
            return idle;
        }
        let own = Arc::clone(&self.own).try_acquire_owned().ok();
        if let Some(permit) = own.or_else(|| self.pool.shared()) {
            return (Some(permit), None);
        }
        let _waiting = {
            let mut idle = self.pool.idle();
            // One may have become idle meanwhile. From here on, it is dropped instead.
            if let Some(idle) = self.take_idle(&mut idle) {
                return idle;
            }
            Waiting::new(&self.waiting)
        };
        let own = Arc::clone(&self.own).acquire_owned().await;
        (own.ok(), None)
    }

    fn take_idle(&self, idle: &mut VecDeque<Idle>) -> Option<(Permit, Option<Instance>)> {
        let place = idle.iter().rposition(|one| one.guest == self.guest)?;
        let Idle {
            instance, permit, ..
        } = idle.remove(place)?;
        Some((permit, Some(instance)))
    }

    /// Keeps an instance for the next call, unless one waits for its permit. Too many idle
    /// instances are too much memory: the least recently used one goes then.
    pub(crate) fn put_by(&self, permit: Permit, instance: Instance) {
        let mut idle = self.pool.idle();
        idle.push_back(Idle {
            guest: self.guest,
            instance,
            permit,
        });
        let dropped = if self.waiting.load(Ordering::Relaxed) > 0 {
            idle.pop_back()
        } else if idle.len() > MOST_IDLE {
            idle.pop_front()
        } else {
            None
        };
        // To drop an instance takes a while.
        drop(idle);
        drop(dropped);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        let all = std::mem::take(&mut *idle).into_iter();
        let (own, others): (Vec<Idle>, Vec<Idle>) = all.partition(|one| one.guest == self.guest);
        *idle = others.into();
        drop(idle);
        drop(own);
    }
}

/// A call that waits for its guest's own instance.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(waiting: &'a AtomicUsize) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
