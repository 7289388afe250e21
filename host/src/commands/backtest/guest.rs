//! Calls into the guest of a backtest, and its live reads.

use std::sync::Arc;

use anyhow::Result;
use davit_core::backtest::{Backtest, Refusal};
use davit_core::circuit::CallFailure;
use davit_core::failure::{Failure, FailureClass};
use davit_core::machine::{Call, ReadAnswer, ReadRequest};
use davit_core::plan::Decision;
use davit_engine::{Guest, LiveReads};
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};

use crate::driver::call_failure;

/// A live read and the way back of its answer, which is dropped if the read is refused.
type Read = (ReadRequest, oneshot::Sender<ReadAnswer>);

/// Passes the reads of a call to the backtest, which has the cluster.
struct BacktestReads(mpsc::UnboundedSender<Read>);

impl LiveReads for BacktestReads {
    fn read(&self, request: ReadRequest) -> BoxFuture<'_, ReadAnswer> {
        let failed = request.failed(&refused());
        let (answer, receiver) = oneshot::channel();
        // A backtest that has ended answers nothing.
        let _ = self.0.send((request, answer));
        Box::pin(async move { receiver.await.unwrap_or(failed) })
    }
}

/// Lets the guest decide. Fails if it reads what the journal does not have.
pub(super) async fn decide(
    call: Call<Arc<Guest>>,
    backtest: &mut Backtest<Arc<Guest>>,
) -> Result<Result<Vec<Decision>, CallFailure>, Refusal> {
    let (sender, mut reads) = mpsc::unbounded_channel();
    let mut refusal: Option<Refusal> = None;
    let (guest, call) = davit_engine::Call::of(call, Arc::new(BacktestReads(sender)));
    let call = davit_engine::Call {
        log_bytes: 0,
        ..call
    };
    let mut reconcile = std::pin::pin!(guest.reconcile(call));
    let result = loop {
        tokio::select! {
            result = &mut reconcile => break result,
            Some((request, answer)) = reads.recv() => match backtest.read(&request) {
                // A guest that has ended waits for no answer.
                Ok(read) => drop(answer.send(read)),
                Err(error) => {
                    refusal.get_or_insert(error);
                }
            },
        }
    };
    match refusal {
        Some(refusal) => Err(refusal),
        None => Ok(result.map_err(|error| call_failure(&error))),
    }
}

fn refused() -> Failure {
    Failure::new(
        FailureClass::Server,
        "the journal does not have what this live read asks for",
    )
}
