//! Why a read or a write failed.

use std::fmt;

use crate::ObjectRef;
use crate::bindings::davit::controller::types;

/// Why a read or a write failed. Decide by the class only, never by the message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The kind of failure.
    pub class: FailureClass,
    /// For a log.
    pub message: String,
}

/// The kinds of failures. The comments say what the host does with a plan that ends with
/// it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FailureClass {
    /// The object does not exist. The plan has the outcome `gone`.
    NotFound,
    /// The name belongs to another object. The plan has the outcome `gone`.
    UidMismatch,
    /// The object has another resource version, or exists already. The plan is retried.
    Conflict,
    /// Too many requests. The plan is retried when the server allows it.
    Throttled,
    /// A disruption budget refuses an eviction. The plan is retried when the server allows
    /// it.
    DisruptionBudget,
    /// The server failed. The plan is retried.
    Server,
    /// It is unknown whether the server did anything. The plan is retried.
    Timeout,
    /// The resource does not accept this kind of patch. The plan is retried: choose
    /// another kind.
    UnsupportedMedia,
    /// The server does not serve the kind. The plan is retried.
    Unmappable,
    /// RBAC. The plan is retried after a longer pause.
    Forbidden,
    /// The body, a schema or an admission policy forbids the request. The failure is
    /// reported, and the plan is retried after 5 minutes; a tick, at its next time.
    Invalid,
    /// A guardrail, a permission, or another owner of the target. The failure is
    /// reported, and the plan is not retried.
    RefusedByGate,
    /// The operator keeps such objects before they are deleted, and this one could not be
    /// kept. The plan is retried.
    NotKept,
    /// A class of a later host.
    Other(String),
}

const CLASSES: [(&str, FailureClass); 13] = [
    ("not-found", FailureClass::NotFound),
    ("uid-mismatch", FailureClass::UidMismatch),
    ("conflict", FailureClass::Conflict),
    ("throttled", FailureClass::Throttled),
    ("disruption-budget", FailureClass::DisruptionBudget),
    ("server", FailureClass::Server),
    ("timeout", FailureClass::Timeout),
    ("unsupported-media", FailureClass::UnsupportedMedia),
    ("unmappable", FailureClass::Unmappable),
    ("forbidden", FailureClass::Forbidden),
    ("invalid", FailureClass::Invalid),
    ("refused-by-gate", FailureClass::RefusedByGate),
    ("not-kept", FailureClass::NotKept),
];

impl FailureClass {
    /// The class by its name in the contract.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        let known = CLASSES.into_iter().find(|(known, _)| *known == name);
        known.map_or_else(|| Self::Other(name.to_owned()), |(_, class)| class)
    }

    /// The name in the contract.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Other(name) => name,
            known => CLASSES
                .iter()
                .find(|(_, class)| class == known)
                .map_or("", |(name, _)| name),
        }
    }
}

impl fmt::Display for FailureClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Failure {
    /// The retry after a read of this object failed.
    #[must_use]
    pub fn of_read(&self, target: &ObjectRef) -> Retry {
        Retry(format!("{target} could not be read: {self}"))
    }

    /// Whether it proves that the object does not exist: nothing has its name, or another
    /// object has.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        matches!(
            self.class,
            FailureClass::NotFound | FailureClass::UidMismatch
        )
    }
}

impl fmt::Display for Failure {
    /// `timeout: no answer within 10 s`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Failure {}

impl From<types::Failure> for Failure {
    fn from(failure: types::Failure) -> Self {
        Self {
            class: FailureClass::from_name(&failure.class),
            message: failure.message,
        }
    }
}

/// The error of a [`reconcile`](crate::Controller::reconcile): the item is requeued after
/// its queue's back-off. Operators see the text.
///
/// `?` makes one of whatever implements [`Error`](std::error::Error), with its causes, such as a
/// [`Failure`] or a text that is no number. `Retry` itself is therefore none. Of a text or a boxed
/// error, make one with [`Retry::new`]; say what was read, as [`Failure::of_read`] does for a live
/// read:
///
/// ```
/// # use davit_guest::Retry;
/// fn replicas(annotation: Option<&str>) -> Result<u32, Retry> {
///     let text = annotation.ok_or_else(|| Retry::new("there is no annotation replicas"))?;
///     let number = text.parse::<u32>();
///     number.map_err(|error| Retry::new(format!("replicas is \"{text}\": {error}")))
/// }
/// fn short(text: &str) -> Result<u32, Retry> {
///     Ok(text.parse::<u32>()?)
/// }
/// assert_eq!(replicas(Some("3")), short("3"));
/// assert_eq!(short("x"), Err(Retry::new("invalid digit found in string")));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry(String);

impl Retry {
    /// The item is retried for this reason.
    #[must_use]
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// The reason.
    #[must_use]
    pub fn into_reason(self) -> String {
        self.0
    }
}

impl fmt::Display for Retry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl<E: std::error::Error> From<E> for Retry {
    /// The text of the error, then those of its causes; of a [`Failure`], the class and the
    /// message.
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(error) = cause {
            text = format!("{text}: {error}");
            cause = error.source();
        }
        Self(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_class_has_its_name_in_the_contract() {
        for (name, class) in CLASSES {
            assert_eq!(FailureClass::from_name(name), class);
            assert_eq!(class.as_str(), name);
        }
        let later = FailureClass::from_name("eaten");
        assert_eq!(later, FailureClass::Other("eaten".to_owned()));
        assert_eq!(later.as_str(), "eaten");
    }

    #[test]
    fn a_failure_is_a_retry_with_its_class_in_the_text() {
        let failure = Failure {
            class: FailureClass::Timeout,
            message: "no answer".to_owned(),
        };
        assert_eq!(Retry::from(failure).into_reason(), "timeout: no answer");
    }

    #[derive(Debug)]
    struct Unread(std::num::ParseIntError);

    impl fmt::Display for Unread {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("the site is not read")
        }
    }

    impl std::error::Error for Unread {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            Some(&self.0)
        }
    }

    #[test]
    fn an_error_is_a_retry_with_its_causes() {
        let read = || -> Result<i32, Retry> { Ok("x".parse::<i32>().map_err(Unread)?) };
        let expected = "the site is not read: invalid digit found in string";
        assert_eq!(read(), Err(Retry::new(expected)));
    }
}
