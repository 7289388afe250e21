//! Faults as text, for command lines: `delete pods 10% 429=3`.
//!
//! ```text
//! FAULT  = VERB RESOURCE [WHERE…] [WHEN] EFFECT
//! VERB   = get | list | watch | create | update | patch | delete
//!        | deletecollection | any
//! RESOURCE = PLURAL | PLURAL/SUBRESOURCE | any
//! WHERE  = namespace=NAME | name=NAME
//! WHEN   = always | P% | first=N | nth=N | every=N
//! EFFECT = delay=DURATION | busy=DURATION | 403 | 409 | 422 | 429[=SECONDS] | 500 | 503
//!        | close-before | close-after | cut=BYTES
//!        | end[=N] | abort[=N] | silence[=N] | no-bookmarks[=N] | expire[=N]
//!        | late=DURATION
//! ```
//!
//! The effects of the last two lines are for watches, after N events.

use std::str::FromStr;
use std::time::Duration;

use super::{Action, Fault, FaultTiming, Match, Refusal, WatchFault};

/// A syntax error in the text of a fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FaultSyntax {
    /// Fewer words than a fault has.
    #[error(
        "{0:?} is not a fault: expected VERB RESOURCE [WHERE…] [WHEN] EFFECT, such as `delete pods 10% 429`"
    )]
    TooShort(String),
    /// The first word.
    #[error("{0:?} is not a verb: expected one of {known}, any", known = VERBS.join(", "))]
    Verb(String),
    /// A word between the resource and the effect.
    #[error(
        "{0:?} is not a condition: expected namespace=NAME, name=NAME, always, P%, first=N, nth=N or every=N"
    )]
    Condition(String),
    /// A condition that is there twice.
    #[error("{0:?} repeats an earlier condition")]
    Repeated(String),
    /// The last word.
    #[error(
        "{0:?} is not an effect: expected one of delay=DURATION, busy=DURATION, 403, 409, 422, 429, 429=SECONDS, 500, 503, close-before, close-after, cut=BYTES and, for watches, end, abort, silence, no-bookmarks, expire (each with an optional number of events: abort=3), late=DURATION"
    )]
    Effect(String),
    /// An effect on watches, for another verb.
    #[error("{0:?} is for watches only: use the verb `watch`")]
    WatchOnly(String),
    /// A value that cannot be read.
    #[error("{0:?}: expected {1}")]
    Value(String, &'static str),
}

const VERBS: [&str; 8] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
];

// The expected values, for error messages.
const NUMBER: &str = "a whole number";
const DURATION: &str = "a duration such as 200ms, 5s or 2m";
const SHARE: &str = "a share between 0% and 100%";

impl FromStr for Fault {
    type Err = FaultSyntax;

    fn from_str(text: &str) -> Result<Self, FaultSyntax> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [verb, resource, conditions @ .., effect] = words.as_slice() else {
            return Err(FaultSyntax::TooShort(text.to_owned()));
        };
        let mut matches = match_of(verb, resource)?;
        let mut when = None;
        for word in conditions {
            condition(word, &mut matches, &mut when)?;
        }
        let action = action(effect)?;
        if matches!(action, Action::Watch(..)) && matches.verb != "watch" {
            return Err(FaultSyntax::WatchOnly((*effect).to_owned()));
        }
        Ok(Fault {
            matches,
            when: when.unwrap_or(FaultTiming::Always),
            action,
        })
    }
}

fn match_of(verb: &str, resource: &str) -> Result<Match, FaultSyntax> {
    if verb != "any" && !VERBS.contains(&verb) {
        return Err(FaultSyntax::Verb(verb.to_owned()));
    }
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let unless_any = |word: &str| if word == "any" { "" } else { word }.to_owned();
    Ok(Match {
        verb: unless_any(verb),
        resource: unless_any(resource),
        subresource: subresource.to_owned(),
        ..Match::default()
    })
}

fn condition(
    word: &str,
    matches: &mut Match,
    when: &mut Option<FaultTiming>,
) -> Result<(), FaultSyntax> {
    let place = match word.split_once('=') {
        Some(("namespace", name)) => Some((&mut matches.namespace, name)),
        Some(("name", name)) => Some((&mut matches.name, name)),
        _ => None,
    };
    let repeated = || FaultSyntax::Repeated(word.to_owned());
    if let Some((field, name)) = place {
        if name.is_empty() {
            return Err(FaultSyntax::Value(word.to_owned(), "a name"));
        }
        if !std::mem::replace(field, name.to_owned()).is_empty() {
            return Err(repeated());
        }
        return Ok(());
    }
    match when.replace(parse_when(word)?) {
        None => Ok(()),
        Some(_) => Err(repeated()),
    }
}

fn parse_when(word: &str) -> Result<FaultTiming, FaultSyntax> {
    if let Some(share) = word.strip_suffix('%') {
        let percent: Option<f64> = share.parse().ok();
        return percent
            .filter(|percent| (0.0..=100.0).contains(percent))
            .map(|percent| FaultTiming::Chance(percent / 100.0))
            .ok_or_else(|| FaultSyntax::Value(word.to_owned(), SHARE));
    }
    match word.split_once('=') {
        None if word == "always" => Ok(FaultTiming::Always),
        Some(("first", n)) => Ok(FaultTiming::First(number(word, n)?)),
        Some(("nth", n)) => Ok(FaultTiming::Nth(counting(word, n)?)),
        Some(("every", n)) => Ok(FaultTiming::Every(counting(word, n)?)),
        _ => Err(FaultSyntax::Condition(word.to_owned())),
    }
}

fn action(word: &str) -> Result<Action, FaultSyntax> {
    let (name, value) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    if let Some(fault) = after_events(name) {
        let events = value.map_or(Ok(0), |value| number(word, value))?;
        return Ok(Action::Watch(events, fault));
    }
    Ok(match (name, value) {
        ("delay", Some(value)) => Action::Delay(duration(word, value)?),
        ("busy", Some(value)) => Action::Busy(duration(word, value)?),
        ("late", Some(value)) => Action::Watch(0, WatchFault::Delay(duration(word, value)?)),
        ("403", None) => Action::Refuse(Refusal::Forbidden),
        ("409", None) => Action::Refuse(Refusal::Conflict),
        ("422", None) => Action::Refuse(Refusal::Invalid),
        ("429", None) => Action::Refuse(Refusal::TooManyRequests(1)),
        ("429", Some(value)) => Action::Refuse(Refusal::TooManyRequests(number(word, value)?)),
        ("500", None) => Action::Refuse(Refusal::InternalError),
        ("503", None) => Action::Refuse(Refusal::Unavailable),
        ("close-before", None) => Action::CloseBefore,
        ("close-after", None) => Action::CloseAfter,
        ("cut", Some(value)) => Action::CutBody(number(word, value)?),
        _ => return Err(FaultSyntax::Effect(word.to_owned())),
    })
}

fn after_events(name: &str) -> Option<WatchFault> {
    match name {
        "end" => Some(WatchFault::End),
        "abort" => Some(WatchFault::Abort),
        "silence" => Some(WatchFault::Silence),
        "no-bookmarks" => Some(WatchFault::NoBookmarks),
        "expire" => Some(WatchFault::Expire),
        _ => None,
    }
}

fn number<T: FromStr>(word: &str, value: &str) -> Result<T, FaultSyntax> {
    value
        .parse()
        .map_err(|_| FaultSyntax::Value(word.to_owned(), NUMBER))
}

/// A number from 1 on.
fn counting(word: &str, value: &str) -> Result<u64, FaultSyntax> {
    match number(word, value)? {
        0 => Err(FaultSyntax::Value(word.to_owned(), "a number from 1 on")),
        n => Ok(n),
    }
}

fn duration(word: &str, value: &str) -> Result<Duration, FaultSyntax> {
    value
        .parse::<jiff::SignedDuration>()
        .ok()
        .and_then(|duration| duration.try_into().ok())
        .ok_or_else(|| FaultSyntax::Value(word.to_owned(), DURATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(text: &str) -> Fault {
        text.parse().expect(text)
    }

    #[test]
    fn every_condition() {
        let Fault {
            matches,
            when,
            action,
        } = fault("patch pods/status namespace=a name=b 12.5% 409");
        assert_eq!(
            matches,
            Match {
                verb: "patch".to_owned(),
                group: String::new(),
                resource: "pods".to_owned(),
                subresource: "status".to_owned(),
                namespace: "a".to_owned(),
                name: "b".to_owned(),
            }
        );
        assert_eq!(when, FaultTiming::Chance(0.125));
        assert_eq!(action, Action::Refuse(Refusal::Conflict));
        for (text, when) in [
            ("any any 500", FaultTiming::Always),
            ("any any always 500", FaultTiming::Always),
            ("any any first=2 500", FaultTiming::First(2)),
            ("any any nth=3 500", FaultTiming::Nth(3)),
            ("any any every=4 500", FaultTiming::Every(4)),
            ("any any 100% 500", FaultTiming::Chance(1.0)),
        ] {
            assert_eq!(fault(text).when, when, "{text}");
            assert_eq!(fault(text).matches, Match::default(), "{text}");
        }
    }

    #[test]
    fn every_effect() {
        for (effect, action) in [
            ("delay=1.5s", Action::Delay(Duration::from_millis(1500))),
            ("busy=1ms", Action::Busy(Duration::from_millis(1))),
            ("403", Action::Refuse(Refusal::Forbidden)),
            ("422", Action::Refuse(Refusal::Invalid)),
            ("429", Action::Refuse(Refusal::TooManyRequests(1))),
            ("429=7", Action::Refuse(Refusal::TooManyRequests(7))),
            ("500", Action::Refuse(Refusal::InternalError)),
            ("503", Action::Refuse(Refusal::Unavailable)),
            ("close-before", Action::CloseBefore),
            ("close-after", Action::CloseAfter),
            ("cut=10", Action::CutBody(10)),
            ("end", Action::Watch(0, WatchFault::End)),
            ("abort=3", Action::Watch(3, WatchFault::Abort)),
            ("silence=1", Action::Watch(1, WatchFault::Silence)),
            ("no-bookmarks", Action::Watch(0, WatchFault::NoBookmarks)),
            ("expire=2", Action::Watch(2, WatchFault::Expire)),
            (
                "late=2m",
                Action::Watch(0, WatchFault::Delay(Duration::from_mins(2))),
            ),
        ] {
            assert_eq!(fault(&format!("watch pods {effect}")).action, action);
        }
    }

    #[test]
    fn errors_name_the_word() {
        for (text, named) in [
            ("", "is not a fault"),
            ("delete 429", "\"delete 429\" is not a fault"),
            ("remove pods 429", "\"remove\" is not a verb"),
            (
                "delete pods sometimes 429",
                "\"sometimes\" is not a condition",
            ),
            ("delete pods 101% 429", "\"101%\": expected a share"),
            ("delete pods -1% 429", "\"-1%\": expected a share"),
            ("delete pods NaN% 429", "\"NaN%\": expected a share"),
            ("delete pods nth=0 429", "\"nth=0\": expected a number"),
            ("delete pods first=x 429", "\"first=x\": expected"),
            ("delete pods 10% nth=1 429", "\"nth=1\" repeats"),
            ("delete pods name=a name=b 429", "\"name=b\" repeats"),
            ("delete pods name= 429", "\"name=\": expected a name"),
            ("delete pods 10%", "\"10%\" is not an effect"),
            ("delete pods 418", "\"418\" is not an effect"),
            ("delete pods 500=1", "\"500=1\" is not an effect"),
            ("delete pods cut", "\"cut\" is not an effect"),
            ("delete pods delay=soon", "\"delay=soon\": expected"),
            ("delete pods delay=-1s", "\"delay=-1s\": expected"),
            ("list pods abort=3", "\"abort=3\" is for watches only"),
        ] {
            let error = text.parse::<Fault>().expect_err(text).to_string();
            assert!(error.contains(named), "{text}: {error}");
        }
    }
}
