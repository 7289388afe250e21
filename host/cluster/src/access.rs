//! Access reviews.

use davit_core::failure::Failure;
use davit_core::request::review::{AccessReview, ReviewAnswer};

use crate::api::Api;

/// Asks the API server what an account may do.
pub async fn review(api: &Api, review: &AccessReview) -> Result<ReviewAnswer, Failure> {
    let answer = api.read(&review.request()).await;
    review.answer(answer.as_deref())
}
