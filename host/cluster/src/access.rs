//! Access reviews.

use davit_core::failure::Failure;
use davit_core::request::review::{AccessReview, ReviewAnswer};

use crate::api::{Api, Course};

/// Asks the API server what an account may do.
pub async fn review(api: &Api, review: &AccessReview) -> Result<ReviewAnswer, Failure> {
    let answer = api.call(&review.request(), &mut Course::of_reads()).await;
    review.answer(answer.as_deref())
}
