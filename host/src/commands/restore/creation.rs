//! Creating an object, whose reply may be lost: then the cluster says whether the object is there.

use std::error::Error;
use std::io;
use std::time::Duration;

use anyhow::{Result, bail};
use davit_core::request::{path, with_query};
use hyper::Request;
use kube::core::response::StatusSummary;
use serde_json::Value;
use tokio::time::sleep;

use super::cluster::Cluster;
use crate::commands::print::{part, text_at};
use crate::resource::describe;

/// Who creates the object, in its managed fields.
const MANAGER: &str = "davit-restore";
/// How often a creation is sent at most. It is sent again only if the one before was not sent or was
/// certainly not executed. The name alone does not prevent a second object: the first one may be
/// created and deleted again within the pause, and its work would run twice.
const MOST_ATTEMPTS: u32 = 3;
/// The reason that kube gives an answer without a status of the API server.
const NO_STATUS: &str = "Failed to parse error data";
/// The pause before the name is looked up: a request whose reply was lost may still be under way.
const PAUSE: Duration = Duration::from_secs(2);

/// What is known of a creation that was not refused.
#[derive(Debug)]
pub(super) enum Creation {
    /// The object, as the API server has it.
    Created(Value),
    /// The reply was lost, and whether the object was created cannot be said: why.
    Unknown(String),
}

/// What a failed creation says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reply {
    /// The API server has not created the object.
    Refused,
    /// The name is taken: perhaps by a creation whose reply was lost.
    Taken,
    /// The API server failed, and says so itself: it has not created the object.
    Failed,
    /// There was no connection: nothing was sent.
    Unsent,
    /// There was no reply, a part of it, or one that does not say whether the object was created.
    Lost,
}

/// The object of the name, after a reply was lost.
enum NameOwner {
    Nothing,
    /// What was sent.
    Sent(Value),
    /// Created by `davit restore`, but different from what was sent.
    Changed(String),
    /// Somebody else created this uid.
    Other(String),
}

impl Cluster {
    /// The API server checks the object, and stores nothing. Returns what it would store.
    pub(super) async fn dry_run(&self, object: &Value) -> Result<Value> {
        let checked = self.post(object, "All").await?;
        checked.or_else(|error| match Reply::of(&error) {
            Reply::Refused | Reply::Taken => bail!(refusal(&error)),
            Reply::Failed | Reply::Unsent | Reply::Lost => {
                bail!(
                    "the API server did not check the object: {}",
                    describe(&error)
                )
            }
        })
    }

    /// Creates the object. Fails if it is certainly not created.
    pub(super) async fn create(&self, object: &Value) -> Result<Creation> {
        let mut was_sent = false;
        let mut is_absent = true;
        let mut said = String::new();
        for attempt in 1..=MOST_ATTEMPTS {
            let error = match self.post(object, "").await? {
                Ok(created) => return Ok(Creation::Created(created)),
                Err(error) => error,
            };
            let reply = Reply::of(&error);
            if !was_sent && matches!(reply, Reply::Refused | Reply::Taken) {
                bail!(refusal(&error));
            }
            said = describe(&error);
            was_sent |= reply != Reply::Unsent;
            sleep(PAUSE * attempt).await;
            if !was_sent {
                continue;
            }
            let found = self.look(object).await;
            is_absent = matches!(found, Ok(NameOwner::Nothing));
            if let Some(known) = of_owner(found, &said)? {
                return Ok(known);
            }
            match reply {
                Reply::Refused if is_absent => bail!(refusal(&error)),
                Reply::Refused | Reply::Taken | Reply::Lost => {
                    return Ok(Creation::Unknown(not_found(&said, is_absent)));
                }
                Reply::Failed | Reply::Unsent => {}
            }
        }
        if !was_sent {
            bail!("nothing was sent to the API server: {said}");
        }
        if is_absent {
            bail!("the API server has failed ({said}), and the object is not there");
        }
        Ok(Creation::Unknown(not_found(&said, is_absent)))
    }

    /// The inner error is that of the request.
    async fn post(
        &self,
        object: &Value,
        dry_run: &str,
    ) -> Result<std::result::Result<Value, kube::Error>> {
        let served = self.served_as(object)?;
        let namespace = text_at(object, "/metadata/namespace");
        let path = path(&served.resource, namespace, "", "");
        let path = with_query(path, &[("dryRun", dry_run), ("fieldManager", MANAGER)]);
        let request = Request::post(path).header("content-type", "application/json");
        let request = request.body(serde_json::to_vec(object)?)?;
        Ok(self.client().request::<Value>(request).await)
    }

    async fn look(&self, sent: &Value) -> Result<NameOwner> {
        let served = self.served_as(sent)?;
        let of = |pointer| text_at(sent, pointer);
        let (namespace, name) = (of("/metadata/namespace"), of("/metadata/name"));
        let Some(found) = self.get(&served.resource, namespace, name).await? else {
            return Ok(NameOwner::Nothing);
        };
        let uid = text_at(&found, "/metadata/uid").to_owned();
        Ok(match (is_managed(&found), has(&found, sent)) {
            (Some(false), _) => NameOwner::Other(uid),
            (_, true) => NameOwner::Sent(found),
            (_, false) => NameOwner::Changed(uid),
        })
    }
}

impl Reply {
    fn of(error: &kube::Error) -> Self {
        let status = match error {
            kube::Error::Api(status) => status,
            error if is_unsent(error) => return Self::Unsent,
            _ => return Self::Lost,
        };
        // A limit of the traffic, which may have no status: nothing was executed.
        if status.code == 429 {
            return Self::Failed;
        }
        // Somebody in between has answered.
        if status.status != Some(StatusSummary::Failure) || status.reason == NO_STATUS {
            return Self::Lost;
        }
        match (status.code, status.reason.as_str()) {
            (409, "AlreadyExists") => Self::Taken,
            (400..500, _) => Self::Refused,
            // A timeout of etcd has the code 500 and another reason or none: it may have been
            // executed.
            (500, "InternalError") => Self::Failed,
            _ => Self::Lost,
        }
    }
}

/// Whether a request was certainly not sent, because there was no connection.
fn is_unsent(error: &(dyn Error + 'static)) -> bool {
    let causes = std::iter::successors(Some(error), |error| behind(*error));
    let mut causes = causes.filter_map(|cause| cause.downcast_ref());
    causes.any(hyper_util::client::legacy::Error::is_connect)
}

/// The cause of an error. An I/O error hides the one that it contains.
fn behind<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e (dyn Error + 'static)> {
    let io = error.downcast_ref::<io::Error>();
    match io.and_then(io::Error::get_ref) {
        Some(inner) => Some(inner),
        None => error.source(),
    }
}

/// What the object of the name says about a creation; none if it proves nothing. Fails if somebody
/// else has created that object.
fn of_owner(found: Result<NameOwner>, said: &str) -> Result<Option<Creation>> {
    Ok(match found {
        Ok(NameOwner::Sent(created)) => Some(Creation::Created(created)),
        Ok(NameOwner::Changed(uid)) => Some(Creation::Unknown(format!(
            "the API server did not confirm the creation ({said}), and the object that has the name now, {uid}, differs \
             from what was sent"
        ))),
        Ok(NameOwner::Other(uid)) => bail!(
            "the API server did not confirm the creation ({said}), and the name belongs to another object, {uid}, that davit \
             restore has not created"
        ),
        Ok(NameOwner::Nothing) | Err(_) => None,
    })
}

fn not_found(said: &str, is_absent: bool) -> String {
    if is_absent {
        format!(
            "the API server did not confirm the creation ({said}), and the object is not there: it may be created later, or \
             was created and deleted again"
        )
    } else {
        format!(
            "the API server did not confirm the creation ({said}), and the name cannot be looked up"
        )
    }
}

fn refusal(error: &kube::Error) -> String {
    format!("the API server refuses the object: {}", describe(error))
}

/// Whether `davit restore` is among the managers of an object; none if it has no managed fields.
fn is_managed(object: &Value) -> Option<bool> {
    let managers = part(object, "/metadata/managedFields").as_array()?;
    let mut names = managers.iter().map(|one| text_at(one, "/manager"));
    Some(names.any(|name| name == MANAGER))
}

/// Whether an object has everything that was sent. The API server adds defaults, and admission
/// control adds fields and entries of lists.
fn has(found: &Value, sent: &Value) -> bool {
    match (found, sent) {
        (Value::Object(found), Value::Object(sent)) => sent.iter().all(|(name, sent)| {
            found
                .get(name)
                .map_or_else(|| is_empty(sent), |found| has(found, sent))
        }),
        (Value::Array(found), Value::Array(sent)) => {
            let mut rest = found.iter();
            sent.iter().all(|sent| rest.any(|found| has(found, sent)))
        }
        (found, sent) => found == sent,
    }
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::commands::restore::testing::{Fault, Server};

    fn map() -> Value {
        json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "a", "namespace": "shop", "labels": {}}, "data": {"k": "v"},
        })
    }

    async fn created(server: &Server) -> Result<Creation> {
        server.cluster().create(&map()).await
    }

    #[tokio::test(start_paused = true)]
    async fn an_object_whose_reply_was_lost_is_created_if_the_cluster_has_what_was_sent() {
        for fault in [Fault::LostAfter, Fault::Code(504), Fault::Torn] {
            let server = Server::new([fault]);
            let Creation::Created(object) = created(&server).await.unwrap() else {
                panic!("{fault:?}");
            };
            assert_eq!(object["metadata"]["uid"], "new-1", "{fault:?}");
            assert_eq!(server.posts(), 1, "{fault:?}");
        }
    }

    /// It may have been created and deleted again: its work would run twice.
    #[tokio::test(start_paused = true)]
    async fn a_creation_whose_reply_was_lost_is_not_sent_again() {
        for fault in [
            Fault::LostBefore,
            Fault::FailedWith(500),
            Fault::FailedWith(502),
            Fault::FailedWith(503),
            Fault::FailedWith(504),
            Fault::Plain(403),
            Fault::Plain(500),
        ] {
            let server = Server::new([fault]);
            let Creation::Unknown(why) = created(&server).await.unwrap() else {
                panic!("{fault:?}: nobody knows");
            };
            assert!(why.contains("the object is not there"), "{fault:?}: {why}");
            assert_eq!(server.posts(), 1, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_was_not_executed_is_sent_again() {
        for fault in [Fault::Unsent, Fault::FailedBefore, Fault::Plain(429)] {
            let server = Server::new([fault]);
            let created = created(&server).await;
            assert!(matches!(created, Ok(Creation::Created(_))), "{fault:?}");
            assert_eq!(server.posts(), 2, "{fault:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn without_any_connection_nothing_is_created() {
        let server = Server::new([Fault::Unsent; 9]);
        let error = created(&server).await.unwrap_err().to_string();
        assert!(error.contains("nothing was sent"), "{error}");
        assert_eq!(server.posts(), MOST_ATTEMPTS);
    }

    /// The first creation arrives late: the second one finds the name taken, by the first.
    #[tokio::test(start_paused = true)]
    async fn a_repeated_creation_whose_name_is_taken_by_the_first_one_is_created() {
        let server = Server::new([Fault::Late]);
        assert!(matches!(created(&server).await, Ok(Creation::Created(_))));
        assert_eq!(server.posts(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dry_run_without_an_answer_is_no_refusal() {
        for (fault, is_refused) in [
            (Fault::LostBefore, false),
            (Fault::FailedBefore, false),
            (Fault::FailedWith(503), false),
            (Fault::FailedWith(422), true),
        ] {
            let error = Server::new([fault]).cluster().dry_run(&map()).await;
            let error = error.unwrap_err().to_string();
            assert_eq!(error.contains("refuses"), is_refused, "{fault:?}: {error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_the_server_has_failed_and_does_not_have_is_not_created() {
        let server = Server::new([Fault::FailedBefore; 9]);
        let error = created(&server).await.unwrap_err().to_string();
        assert!(error.contains("the object is not there"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn another_object_of_the_name_is_not_what_was_sent() {
        let server = Server::new([Fault::LostBefore]).with_rival("kubectl");
        let error = created(&server).await.unwrap_err().to_string();
        assert!(
            error.contains("belongs to another object, rival"),
            "{error}"
        );
        let server = Server::new([Fault::LostBefore]).with_rival(MANAGER);
        let Creation::Unknown(why) = created(&server).await.unwrap() else {
            panic!("it may be another davit restore");
        };
        assert!(why.contains("differs from what was sent"), "{why}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_no_lost_reply() {
        let server = Server::new([Fault::FailedWith(403)]);
        let error = created(&server).await.unwrap_err().to_string();
        assert!(error.contains("refuses the object"), "{error}");
        assert_eq!(server.posts(), 1);
    }

    #[test]
    fn an_object_has_what_was_sent_whatever_was_added() {
        let sent = json!({"a": {"b": 1, "e": {}}, "l": [{"n": 1}, {"n": 3}], "n": null});
        let found = json!({"a": {"b": 1, "c": 2}, "l": [{"n": 1, "d": 0}, {"n": 2}, {"n": 3}]});
        assert!(has(&found, &sent) && !has(&sent, &found));
        assert!(!has(
            &json!({"l": [{"n": 3}, {"n": 1}]}),
            &json!({"l": [{"n": 1}, {"n": 3}]})
        ));
        assert!(!has(&json!({"a": 2}), &json!({"a": 1})));
    }
}
