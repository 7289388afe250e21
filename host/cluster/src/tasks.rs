//! Tasks that always return a result: the machine waits for an answer to each of its
//! effects, also if the work panics.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures::FutureExt as _;

/// Runs some work to its result, or to an error with the message of its panic. The work
/// is dropped then, so that nobody sees a state that is half done.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let result = AssertUnwindSafe(work).catch_unwind().await;
    result.map_err(|panic| format!("Davit panicked, which is a bug: {}", message(&*panic)))
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_panic_is_an_error_with_its_message() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        let count = std::env::args().count();
        let fixed = async { assert!(count == usize::MAX, "a bad token") };
        let formatted = async { assert!(count == usize::MAX, "{} bad tokens", 2) };
        for (panicked, expected) in [
            (caught(fixed).await, "a bad token"),
            (caught(formatted).await, "2 bad tokens"),
        ] {
            let error = panicked.unwrap_err();
            assert_eq!(error, format!("Davit panicked, which is a bug: {expected}"));
        }
    }
}
