//! Rules that select too much meet the guardrails.

use std::collections::BTreeSet;
use std::time::Duration;

use davit_core::control::Requests;
use davit_core::control::requests::reset;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{NAME, failed_for, failed_pods, lately, policy, until, yesterday};
use crate::bench::{Bench, on_the_sim};
use crate::rollout::{condition, declared};

/// Keeps one failed pod: a group with one item and many plans.
fn all_but_one() -> Value {
    json!([{
        "name": "surplus",
        "match": {"resource": "pods"},
        "when": "object.status.phase == 'Failed'",
        "keep": {"newest": 1},
        "do": {"delete": {}},
    }])
}

fn limited(rules: &Value, guardrails: &Value) -> String {
    policy("Enforce", rules, &json!({"guardrails": guardrails}))
}

/// Of 30 pods that the rules select, a guardrail admits some; an operator's reset admits as many
/// again.
async fn trips(bench: Bench, rules: &Value, guardrails: &Value, limit: usize) {
    failed_pods(&bench, "p", 30, &yesterday()).await;
    let config = limited(rules, guardrails);
    let host = declared(&bench, &config).await;
    let status = until(&host, |status| !status.tripped.is_empty()).await;
    let [tripped] = &status.tripped[..] else {
        panic!("{:?}", status.tripped);
    };
    assert_eq!(usize::try_from(tripped.limit).unwrap(), limit);
    assert_eq!(tripped.until, None, "until an operator resets it");
    assert!(guardrails.get(&tripped.guardrail).is_some(), "{tripped:?}");
    sleep(Duration::from_mins(30)).await;
    assert_eq!(bench.pods().await.len(), 30 - limit);
    let status = host.status_of(NAME).await;
    let (is, reason, _) = condition(&status, "Ready");
    assert_eq!((&*is, &*reason), ("False", "GuardrailTripped"));
    let series = format!(
        "davit_plans_total{{controller=\"{NAME}\",role=\"stable\",ruling=\"guardrail-tripped\"}}"
    );
    assert!(host.metric(&series) >= 1.0);

    let requests = Requests {
        reset: reset(&status).map(ToOwned::to_owned),
        ..Requests::default()
    };
    host.request(&config, 1, requests).await;
    sleep(Duration::from_mins(30)).await;
    assert_eq!(bench.pods().await.len(), 30 - 2 * limit);
    host.assert_every_call_answered();
}

#[test]
fn a_limit_of_deletions_stops_rules_that_select_too_much() {
    on_the_sim(|bench| async move {
        let guardrails = json!({"deletesPerMinute": 5, "cooldown": "until reset"});
        trips(bench, &failed_for("24h"), &guardrails, 5).await;
    });
}

#[test]
fn a_limit_in_percent_stops_a_rule_that_keeps_too_few() {
    on_the_sim(|bench| async move {
        let guardrails = json!({"deletesPercentPerMinute": 10, "cooldown": "until reset"});
        trips(bench, &all_but_one(), &guardrails, 3).await;
    });
}

/// The next rules own half of the pods, and have half of the limit.
#[test]
fn next_rules_that_exceed_their_share_of_a_limit_are_rolled_back() {
    on_the_sim(|bench| async move {
        failed_pods(&bench, "p", 40, &lately()).await;
        let more = json!({
            "rollout": {"steps": ["weight 50 until promoted"]},
            "guardrails": {"deletesPerMinute": 6},
        });
        let host = declared(&bench, &policy("Enforce", &failed_for("24h"), &more)).await;
        let first = until(&host, |status| status.stable.is_some()).await;
        let next = policy("Enforce", &failed_for("1h"), &more);
        host.declare(&next, 2).await;
        let status = until(&host, |status| status.rejected.is_some()).await;
        assert_eq!((status.candidate, status.stable), (None, first.stable));
        let reason = status.rejected.unwrap().reason;
        let expected = "its share of a guardrail tripped: ";
        assert!(reason.starts_with(expected), "{reason}");
        assert!(reason.contains("deletesPerMinute"), "{reason}");
        sleep(Duration::from_mins(30)).await;
        assert_eq!(bench.pods().await.len(), 40 - 3);
        // The stable rules may still delete.
        failed_pods(&bench, "old", 2, &yesterday()).await;
        sleep(Duration::from_secs(10)).await;
        let left: BTreeSet<String> = bench.pods().await;
        assert_eq!(left.len(), 40 - 3, "{left:?}");
        assert!(left.iter().all(|name| name.starts_with("p-")), "{left:?}");
        host.assert_every_call_answered();
    });
}
