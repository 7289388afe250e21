//! Gives requests their turns: the driver of [`Traffic`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use davit_core::manifest::Rate;
use davit_core::time::Instant;
use davit_core::traffic::{Destination, LoadSignal, Ticket, Traffic, Turn, TurnRequest};
use tokio::sync::oneshot;

use crate::clock::Clock;

/// The longest sleep of the alarm: a rate of 0 never gives a turn.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

/// Limits the rate of requests. Clones share the limit.
#[derive(Clone)]
pub(crate) struct Limiter(Arc<Inner>);

struct Inner {
    clock: Clock,
    state: Mutex<State>,
}

struct State {
    traffic: Traffic,
    waiting: HashMap<Ticket, oneshot::Sender<Turn>>,
    /// When the next permit is due.
    alarm: Option<Instant>,
}

/// A place among the requests under way, or in the line for one. Dropping it releases
/// the place.
#[derive(Debug)]
pub(crate) struct Permit {
    limiter: Limiter,
    ticket: Ticket,
    is_over: bool,
}

impl std::fmt::Debug for Limiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Limiter")
    }
}

impl Limiter {
    /// Without a rate there is no limit.
    pub(crate) fn new(rate: Option<Rate>, clock: Clock) -> Self {
        Self(Arc::new(Inner {
            clock,
            state: Mutex::new(State {
                traffic: Traffic::new(rate),
                waiting: HashMap::new(),
                alarm: None,
            }),
        }))
    }

    /// Waits for a permit. Fails with the rest of the server's pause if the rest is too
    /// long to wait.
    pub(crate) async fn turn(&self, asked: TurnRequest) -> Result<Permit, Duration> {
        let (sender, turn) = oneshot::channel();
        let ticket = {
            let mut state = self.0.state();
            let ticket = state.traffic.ask(asked, self.0.clock.instant());
            state.waiting.insert(ticket, sender);
            ticket
        };
        // From here on, dropping this future releases the place.
        let permit = Permit {
            limiter: self.clone(),
            ticket,
            is_over: false,
        };
        self.0.give_turns();
        match turn.await {
            Ok(Turn::Go) => Ok(permit),
            Ok(Turn::Paused(left)) => Err(left),
            // Senders are only dropped with the permit.
            Err(_) => Err(Duration::ZERO),
        }
    }

    /// The server asked for a pause.
    pub(crate) fn pause(&self, destination: Destination, pause: Duration) {
        let now = self.0.clock.instant();
        self.0.state().traffic.pause(destination, pause, now);
        self.0.give_turns();
    }

    /// Lifts the rate of events: only events are left to send.
    pub(crate) fn flush_events(&self) {
        self.0.state().traffic.flush_events();
        self.0.give_turns();
    }
}

impl Permit {
    /// The request has ended.
    pub(crate) fn end(mut self, kind: &str, ended: LoadSignal) {
        self.leave(kind, ended);
    }

    fn leave(&mut self, kind: &str, ended: LoadSignal) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        let inner = &self.limiter.0;
        let now = inner.clock.instant();
        {
            let mut state = inner.state();
            state.waiting.remove(&self.ticket);
            state.traffic.end(self.ticket, kind, ended, now);
        }
        inner.give_turns();
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.leave("", LoadSignal::Unknown);
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes every request that has its turn, and sets the alarm for the next one.
    fn give_turns(self: &Arc<Self>) {
        let now = self.clock.instant();
        let mut state = self.state();
        while let Some((ticket, turn)) = state.traffic.poll_turn(now) {
            if let Some(waiting) = state.waiting.remove(&ticket) {
                // A receiver that does not wait any more drops the permit.
                let _ = waiting.send(turn);
            }
        }
        let next = state.traffic.poll_timeout(now);
        let Some(next) = next.map(|at| at.min(now.after(LONGEST_SLEEP))) else {
            return;
        };
        // At the end of the process, no task may be left to wait for it.
        if state.alarm.is_none_or(|alarm| next < alarm)
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            state.alarm = Some(next);
            let deadline = self.clock.deadline(next);
            runtime.spawn(ring(Arc::downgrade(self), next, deadline));
        }
    }
}

async fn ring(limiter: Weak<Inner>, alarm: Instant, deadline: tokio::time::Instant) {
    tokio::time::sleep_until(deadline).await;
    let Some(limiter) = limiter.upgrade() else {
        return;
    };
    {
        let mut state = limiter.state();
        if state.alarm == Some(alarm) {
            state.alarm = None;
        }
    }
    limiter.give_turns();
}

#[cfg(test)]
mod tests {
    use davit_core::traffic::{Access, Urgency};
    use tokio::time::sleep;

    use super::*;

    fn turn_request(group: &str, urgency: Urgency) -> TurnRequest {
        TurnRequest {
            controller: "a".into(),
            urgency,
            destination: Destination {
                user: "".into(),
                group: group.into(),
                access: Access::Write,
            },
        }
    }

    fn limiter(per_second: f64, burst: u32) -> Limiter {
        Limiter::new(Some(Rate { per_second, burst }), Clock::start())
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_at_the_rate() {
        let limiter = limiter(10.0, 2);
        let start = tokio::time::Instant::now();
        let mut times = Vec::new();
        for _ in 0..4 {
            let permit = limiter
                .turn(turn_request("", Urgency::Begin))
                .await
                .unwrap();
            times.push(start.elapsed().as_millis());
            permit.end("get", LoadSignal::Answered);
        }
        assert_eq!(times[..2], [0, 0]);
        assert!((99..=103).contains(&times[2]), "{times:?}");
        assert!((199..=205).contains(&times[3]), "{times:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_short_pause_delays_requests_and_a_long_one_fails_them() {
        let limiter = Limiter::new(None, Clock::start());
        let asked = turn_request("example.com", Urgency::Begin);
        limiter.pause(asked.destination.clone(), Duration::from_secs(2));
        let start = tokio::time::Instant::now();
        let waiting = limiter.turn(asked.clone());
        drop(waiting.await.unwrap());
        assert_eq!(start.elapsed().as_secs(), 2);
        limiter.pause(asked.destination.clone(), Duration::from_secs(2));
        let longer = async {
            sleep(Duration::from_secs(1)).await;
            limiter.pause(asked.destination.clone(), Duration::from_secs(30));
        };
        let (turn, ()) = tokio::join!(limiter.turn(asked.clone()), longer);
        assert_eq!(turn.unwrap_err(), Duration::from_secs(30));
    }

    /// The place of a request is free again when the request ends, and when it is
    /// cancelled.
    #[tokio::test(start_paused = true)]
    async fn places_come_back() {
        let limiter = Limiter::new(None, Clock::start());
        let asked = turn_request("", Urgency::Begin);
        let mut permits = Vec::new();
        let turn = || async {
            let waiting = limiter.turn(asked.clone());
            tokio::time::timeout(Duration::from_millis(1), waiting).await
        };
        while let Ok(permit) = turn().await {
            permits.push(permit.unwrap());
        }
        let places = permits.len();
        assert_eq!(places, 64);
        for count in [1, 3] {
            permits.truncate(places - count);
            for _ in 0..count {
                permits.push(turn().await.unwrap().unwrap());
            }
            assert!(turn().await.is_err());
        }
        permits.pop().unwrap().end("patch", LoadSignal::Answered);
        assert!(turn().await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn no_rate_at_all_gives_no_turn() {
        let limiter = limiter(0.0, 1);
        let waiting = limiter.turn(turn_request("", Urgency::Begin));
        let waiting = tokio::time::timeout(Duration::from_hours(24), waiting);
        assert!(waiting.await.is_err());
    }
}
