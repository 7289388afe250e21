//! Deletions whose targets are kept before.

use davit_core::undo::{UndoKind, UndoRules};
use tokio::sync::oneshot;

use super::*;

/// Answers late, and says that it was asked.
struct SlowKeeper(std::sync::Mutex<Option<oneshot::Sender<()>>>);

impl Keeper for SlowKeeper {
    async fn keep(&self, _: KeptObject) -> Result<(), NotKept> {
        let asked = self.0.lock().unwrap().take();
        asked.unwrap().send(()).unwrap();
        // The copy would be kept one second later.
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }
}

fn keeping(server: &Server) -> Writer {
    let kind = UndoKind {
        group: String::new(),
        resource: "pods".to_owned(),
    };
    let rules = UndoRules {
        kinds: vec![kind],
        keep_for: Duration::from_secs(60),
    };
    writer(server).with_undo(Some(Undo {
        rules: Arc::new(rules),
        has_journal: true,
    }))
}

#[tokio::test(start_paused = true)]
async fn a_plan_that_is_withdrawn_while_it_waits_for_its_copy_sends_no_deletion() {
    let server = Server::always(200, patched());
    let (asked, is_asked) = oneshot::channel();
    let keeper = SlowKeeper(std::sync::Mutex::new(Some(asked)));
    let delete = plan(&pod(), Step::Delete(DeleteOptions::default()));
    let withdrawal = async { is_asked.await.unwrap() };
    let term = Term::unlimited();
    let (mapping, delete) = (Arc::new(mapping()), Arc::new(delete));
    let writer = keeping(&server);
    let executed = writer.execute(&mapping, &delete, None, &keeper, withdrawal, &term);
    let (outcome, _) = executed.await;
    let (_, failure) = outcome.failed.unwrap();
    assert_eq!(failure.class, FailureClass::Conflict);
    assert_eq!(server.only().method, http::Method::GET);
}
