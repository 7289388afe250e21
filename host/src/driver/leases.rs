//! Leader election: the requests for leases, and until when this replica leads.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use davit_cluster::api::Api;
use davit_cluster::clock::Clock;
use davit_cluster::leases;
use davit_cluster::tasks::caught;
use davit_cluster::term::Term;
use davit_core::election::{LeaseAnswer, LeaseRequest, LeaseTerm, LeaseTiming, LeaseWriteError};
use davit_core::host::{Input, LeaseSettings};
use davit_core::time::Instant;
use tokio::sync::{mpsc, watch};

use super::message::Message;
use crate::repeat::RepeatedLine;

/// Executes the requests of leader election, each in a task of its own.
pub(super) struct LeaseDriver {
    api: Api,
    namespace: String,
    timing: LeaseTiming,
    failures: Arc<RepeatedLine>,
    inbox: mpsc::UnboundedSender<Message>,
}

impl LeaseDriver {
    pub(super) fn new(
        api: Api,
        namespace: String,
        settings: &LeaseSettings,
        inbox: mpsc::UnboundedSender<Message>,
    ) -> Self {
        Self {
            api,
            namespace,
            timing: settings.timing,
            failures: Arc::new(RepeatedLine::new()),
            inbox,
        }
    }

    pub(super) fn run(&self, request: LeaseRequest) {
        let (api, namespace, inbox) =
            (self.api.clone(), self.namespace.clone(), self.inbox.clone());
        let (timing, failures) = (self.timing, Arc::clone(&self.failures));
        tokio::spawn(async move {
            let executed = caught(leases::execute(&api, &namespace, &request, &timing)).await;
            // Without an answer, the lease would be neither read nor written again.
            let (id, answer) = executed
                .unwrap_or_else(|panic| (request.id(), LeaseAnswer::failed(&request, panic)));
            let failure = match &answer {
                LeaseAnswer::Read(Err(error))
                | LeaseAnswer::Written(Err(LeaseWriteError::Failed(error))) => Some(error),
                LeaseAnswer::Deleted
                | LeaseAnswer::Read(Ok(_))
                | LeaseAnswer::Written(Ok(_) | Err(LeaseWriteError::Conflict)) => None,
            };
            if let Some(error) = failure
                && let Some(suppressed) = failures.admit(error)
            {
                tracing::warn!(
                    error,
                    "leader election: a request failed; will retry{suppressed}"
                );
            }
            // The host may have stopped.
            let _ = inbox.send(Message::Input(Input::Lease(id, answer)));
        });
    }
}

/// Until when this replica leads each controller.
pub(super) struct Terms {
    clock: Clock,
    /// How long a request may take that was sent at the end of a term; none if there are no
    /// other replicas.
    grace: Option<Duration>,
    until: BTreeMap<String, watch::Sender<Option<Instant>>>,
}

impl Terms {
    pub(super) fn new(clock: Clock, settings: Option<&LeaseSettings>) -> Self {
        Self {
            clock,
            grace: settings.map(|settings| settings.timing.grace()),
            until: BTreeMap::new(),
        }
    }

    pub(super) fn set(&mut self, controller: &str, until: Option<Instant>) {
        // Those of controllers that were removed.
        let is_used = |one: &watch::Sender<Option<Instant>>| {
            one.receiver_count() > 0 || one.borrow().is_some()
        };
        self.until.retain(|_, one| is_used(one));
        let former = self.of_controller(controller).send_replace(until);
        match (former, until) {
            (None, Some(_)) => tracing::info!(controller, "this replica leads the controller"),
            (Some(_), None) => {
                tracing::info!(controller, "this replica leads the controller no longer");
            }
            _ => {}
        }
    }

    /// Whether this replica leads a controller; none if there are no other replicas.
    pub(super) fn leads(&self, controller: &str) -> Option<bool> {
        let grace = self.grace?;
        let until = self.until.get(controller).and_then(|until| *until.borrow());
        Some(LeaseTerm { until, grace }.holds(self.clock.instant()))
    }

    /// The term of a controller.
    pub(super) fn of(&mut self, controller: &str) -> Term {
        match self.grace {
            None => Term::unlimited(),
            Some(grace) => {
                let until = self.of_controller(controller).subscribe();
                Term::new(self.clock, until, grace)
            }
        }
    }

    fn of_controller(&mut self, controller: &str) -> &watch::Sender<Option<Instant>> {
        let entry = self.until.entry(controller.to_owned());
        entry.or_insert_with(|| watch::Sender::new(None))
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Mutex, PoisonError};

    use davit_cluster::connect;
    use davit_core::election::{LeaseRequestId, LeaseTiming};
    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// The lines of a log.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            lines.extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Lines {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    /// A replica that lost the API server tries every two seconds, for every lease.
    #[tokio::test]
    async fn a_lease_that_cannot_be_read_is_logged_once() {
        let lines = Lines::default();
        let log = tracing_subscriber::fmt()
            .with_writer(lines.clone())
            .finish();
        let _guard = tracing::subscriber::set_default(log);
        // Nothing listens there.
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let client = connect::client(config).unwrap();
        let api = Api::new(client, Clock::start(), None);
        let settings = LeaseSettings {
            identity: "a".to_owned(),
            timing: LeaseTiming::default(),
        };
        let (inbox, mut messages) = mpsc::unbounded_channel();
        let driver = LeaseDriver::new(api, "davit".to_owned(), &settings, inbox);
        for number in 0..50 {
            driver.run(LeaseRequest::Read(LeaseRequestId(number)));
            messages.recv().await.unwrap();
        }
        let text = lines.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&text);
        let failed = text.matches("leader election: a request failed").count();
        assert_eq!(failed, 1, "{text}");
    }
}
