//! Which states operators were notified of: one notice when a state starts, and one
//! when it ends.

use std::collections::BTreeMap;

use super::conditions::{Topic, TopicNotice};
use super::notice::Notice;

/// The states that operators were notified of and that have not ended.
#[derive(Debug, Default)]
pub(super) struct ReportedState(BTreeMap<Topic, String>);

impl ReportedState {
    /// Returns the notices of states that started or ended. While it is unknown whether
    /// the spec can run, there is no notice about its acceptance.
    pub(super) fn report(
        &mut self,
        present: Vec<TopicNotice>,
        is_settled: bool,
        notices: &mut Vec<Notice>,
    ) {
        let topics: Vec<Topic> = present.iter().map(|notice| notice.topic).collect();
        self.0.retain(|topic, _| {
            let stays = topics.contains(topic) || (*topic == Topic::Spec && !is_settled);
            if !stays {
                notices.extend(ended(*topic));
            }
            stays
        });
        for notice in present {
            if self.0.get(&notice.topic) != Some(&notice.key) {
                notices.push(Notice::warning(notice.reason, notice.message));
                self.0.insert(notice.topic, notice.key);
            }
        }
    }
}

fn ended(topic: Topic) -> Option<Notice> {
    let (reason, message) = match topic {
        Topic::Spec => ("SpecAccepted", "the spec is accepted"),
        Topic::Grant => ("Granted", "spec.permissions grants what the guest declares"),
        Topic::Account => (
            "Authorized",
            "the ServiceAccount may read what the guest declares",
        ),
        Topic::Host => ("OnlyHost", "no other host writes this status any more"),
        Topic::Circuit => ("CircuitClosed", "the guest is called again"),
        Topic::Requests => ("Permitted", "the API server refuses no request any more"),
        Topic::Undo => ("Kept", "no deletion is deferred any more"),
        Topic::Served => ("Served", "every watched resource is served"),
        Topic::Trust => (
            "Trusted",
            "the stable revision may write: its module is pinned or signed",
        ),
        // These end with events of their own.
        Topic::Stable | Topic::Step => return None,
    };
    Some(Notice::normal(reason, message.to_owned()))
}
