//! Which states people were notified of: each has one notice when it starts, and one
//! when it ends.

use std::collections::BTreeMap;

use super::conditions::{Topic, TopicNotice};
use super::notice::Notice;

/// The states that people were notified of, and that have not ended yet.
#[derive(Debug, Default)]
pub(super) struct ReportedState(BTreeMap<Topic, String>);

impl ReportedState {
    /// Notifies of what is new, and of what has ended. As long as it is not settled
    /// whether the spec can run, nothing is said of its acceptance.
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
        Topic::Host => ("OnlyHost", "no other host writes this status any more"),
        Topic::Circuit => ("CircuitClosed", "the guest is called again"),
        Topic::Served => ("Served", "every watched resource is served"),
        // Each ends with an event of its own.
        Topic::Stable | Topic::Step => return None,
    };
    Some(Notice::normal(reason, message.to_owned()))
}
