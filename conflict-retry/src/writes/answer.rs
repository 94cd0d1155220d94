//! What the answer to a request has to hold. A body that decodes may still be no object: every field of many types may be
//! absent, so `{}` decodes, which a proxy or a gateway may answer in the API server's place.

use kube::core::subresource::Scale;
use kube::core::{ObjectMeta, Status};
use serde::de::Error as _;

/// The answer, if `meta` of it has a name, as each object has that an API server answers. An error as of an answer that
/// cannot be decoded, otherwise: after a write it is unknown whether it was carried out.
pub(super) fn named<T>(
    answer: Result<T, kube::Error>,
    meta: impl FnOnce(&T) -> &ObjectMeta,
) -> Result<T, kube::Error> {
    let answer = answer?;
    if is_filled(meta(&answer).name.as_deref()) {
        Ok(answer)
    } else {
        Err(senseless("is no object with a name"))
    }
}

/// The same of a scale.
pub(super) fn scale(answer: Result<Scale, kube::Error>) -> Result<Scale, kube::Error> {
    named(answer, |scale| &scale.metadata)
}

/// The answer, if it says that the request has succeeded.
pub(super) fn successful(answer: Result<Status, kube::Error>) -> Result<Status, kube::Error> {
    let status = answer?;
    if status.is_success() {
        Ok(status)
    } else {
        Err(senseless("does not say that the request has succeeded"))
    }
}

/// Whether the API server gives a name to what is created from this. It does not where none is asked for, which is right for
/// a review: that is answered and not stored.
pub(super) fn is_to_be_named(meta: &ObjectMeta) -> bool {
    is_filled(meta.name.as_deref()) || is_filled(meta.generate_name.as_deref())
}

fn is_filled(text: Option<&str>) -> bool {
    text.is_some_and(|text| !text.is_empty())
}

fn senseless(what: &str) -> kube::Error {
    let text = format!("the answer {what}; find out what answered in the API server's place");
    kube::Error::SerdeError(serde_json::Error::custom(text))
}
