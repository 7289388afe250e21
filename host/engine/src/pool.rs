//! The instances of all guests: how many may exist, and which of them are idle.
//!
//! Each guest is sure of one instance. What is left is shared: a busy guest takes more, up to its
//! own limit. So a thousand guests that are rarely called fit, and no guest can keep another one
//! from its call.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::future::{Either, select};
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
    /// One permit for each guest: each is sure of an instance.
    guests: Arc<Semaphore>,
    /// One permit for each instance that may exist.
    permits: Arc<Semaphore>,
    /// The least recently used first.
    idle: Mutex<VecDeque<Idle>>,
    /// How many wait for a shared instance. It grows only while the idle ones are locked.
    waiting: AtomicUsize,
    last_guest: AtomicU64,
    usage: UsageCounter,
    ticker: Ticker,
}

/// The right to one instance. Instances are dropped before their permits.
pub(crate) struct Permit {
    /// None only if the semaphore were closed, which it never is.
    _permit: Option<OwnedSemaphorePermit>,
    /// What a guest's own instance is taken from; none for a shared one.
    own: Option<Arc<Reservation>>,
}

/// What a guest is sure of, until its own instance has ended too.
struct Reservation {
    _guest: OwnedSemaphorePermit,
    _permit: Permit,
}

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
    /// One permit: that of the instance that the guest is sure of.
    own: Arc<Semaphore>,
    reservation: Arc<Reservation>,
    /// How many of its calls wait. It grows only while the idle instances are locked.
    waiting: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(max_instances: u32, ticker: Ticker) -> Self {
        let permits = || Arc::new(Semaphore::new(max_instances as usize));
        Self(Arc::new(Inner {
            max_instances,
            guests: permits(),
            permits: permits(),
            idle: Mutex::default(),
            waiting: AtomicUsize::new(0),
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

    /// The share of another guest; none if there are as many guests as instances. Waits while
    /// all instances that are left are busy.
    pub(crate) async fn share(&self) -> Option<Share> {
        let guest = Arc::clone(&self.0.guests).try_acquire_owned().ok()?;
        let permit = if let Some(permit) = self.shared() {
            permit
        } else {
            let _waiting = Waiter::new(&self.0.waiting, &self.idle());
            // One may have become idle meanwhile.
            match self.shared() {
                Some(permit) => permit,
                None => Permit::shared(Arc::clone(&self.0.permits).acquire_owned().await.ok()),
            }
        };
        Some(Share {
            pool: self.clone(),
            guest: self.0.last_guest.fetch_add(1, Ordering::Relaxed),
            own: Arc::new(Semaphore::new(1)),
            reservation: Arc::new(Reservation {
                _guest: guest,
                _permit: permit,
            }),
            waiting: AtomicUsize::new(0),
        })
    }

    /// The right to one of the shared instances, at the expense of an idle one if no other is
    /// left; none if all are busy.
    fn shared(&self) -> Option<Permit> {
        loop {
            if let Ok(permit) = Arc::clone(&self.0.permits).try_acquire_owned() {
                return Some(Permit::shared(Some(permit)));
            }
            let mut idle = self.idle();
            let oldest = idle.iter().position(|one| one.permit.own.is_none())?;
            let dropped = idle.remove(oldest);
            drop(idle);
            drop(dropped);
        }
    }

    fn idle(&self) -> MutexGuard<'_, VecDeque<Idle>> {
        self.0.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Permit {
    fn shared(permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            _permit: permit,
            own: None,
        }
    }
}

impl Share {
    /// The right to an instance, with an idle one if the guest has any. Waits while the guest's
    /// own instance and all shared ones are busy.
    pub(crate) async fn take(&self) -> (Permit, Option<Instance>) {
        if let Some(taken) = self.try_take() {
            return taken;
        }
        let _waiting = {
            let idle = self.pool.idle();
            let shared = Waiter::new(&self.pool.0.waiting, &idle);
            (shared, Waiter::new(&self.waiting, &idle))
        };
        // One may have become free meanwhile. From here on, what becomes idle is dropped.
        if let Some(taken) = self.try_take() {
            return taken;
        }
        let own = pin!(Arc::clone(&self.own).acquire_owned());
        let shared = pin!(Arc::clone(&self.pool.0.permits).acquire_owned());
        let permit = match select(own, shared).await {
            Either::Left((permit, _)) => self.own_permit(permit.ok()),
            Either::Right((permit, _)) => Permit::shared(permit.ok()),
        };
        (permit, None)
    }

    /// The same, if nothing has to be waited for.
    fn try_take(&self) -> Option<(Permit, Option<Instance>)> {
        if let Some((permit, instance)) = self.take_idle() {
            return Some((permit, Some(instance)));
        }
        let own = Arc::clone(&self.own).try_acquire_owned().ok();
        let own = own.map(|permit| self.own_permit(Some(permit)));
        let permit = own.or_else(|| self.pool.shared())?;
        Some((permit, None))
    }

    fn take_idle(&self) -> Option<(Permit, Instance)> {
        let mut idle = self.pool.idle();
        let place = idle.iter().rposition(|one| one.guest == self.guest)?;
        let Idle {
            instance, permit, ..
        } = idle.remove(place)?;
        Some((permit, instance))
    }

    fn own_permit(&self, permit: Option<OwnedSemaphorePermit>) -> Permit {
        Permit {
            _permit: permit,
            own: Some(Arc::clone(&self.reservation)),
        }
    }

    /// Keeps an instance for the next call, unless somebody waits for its permit. Too many idle
    /// instances are too much memory: the least recently used one goes then.
    pub(crate) fn put_by(&self, permit: Permit, instance: Instance) {
        let mut idle = self.pool.idle();
        let is_shared = permit.own.is_none();
        let waits = |waiting: &AtomicUsize| waiting.load(Ordering::Relaxed) > 0;
        let is_wanted = waits(&self.waiting) || (is_shared && waits(&self.pool.0.waiting));
        idle.push_back(Idle {
            guest: self.guest,
            instance,
            permit,
        });
        let dropped = if is_wanted {
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

/// Somebody who waits for a permit.
struct Waiter<'a>(&'a AtomicUsize);

impl<'a> Waiter<'a> {
    /// From now on, an instance that becomes idle gives its permit back.
    fn new(waiting: &'a AtomicUsize, _locked: &MutexGuard<'_, VecDeque<Idle>>) -> Self {
        waiting.fetch_add(1, Ordering::Relaxed);
        Self(waiting)
    }
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
