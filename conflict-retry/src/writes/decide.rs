//! What a closure may return.

use serde_json::Value;

use crate::outcome::WriteError;

/// What a closure decided after reading, and possibly changing, the object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UpdateDecision {
    /// Write the changed object; nothing is sent if it is unchanged.
    Write,
    /// The goal is met; changes made by the closure are discarded.
    Keep,
    /// Do not write.
    Abort,
}

/// What to do with a replica count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ScaleDecision {
    /// Set it to this value; nothing is sent if it already has this value.
    Set(i32),
    /// The count is already as wanted; send nothing.
    Keep,
    /// Do not write.
    Abort,
}

/// What to do with an object that was read.
#[derive(Debug, Clone, PartialEq)]
pub enum PatchDecision {
    /// Send these operations of a JSON Patch; `test` operations among them are additional guards.
    Patch(Vec<Value>),
    /// The object is already as wanted; send nothing.
    Keep,
    /// Do not write.
    Abort,
}

impl From<()> for UpdateDecision {
    /// Without a decision, what was changed is written.
    fn from((): ()) -> Self {
        Self::Write
    }
}

impl From<i32> for ScaleDecision {
    fn from(count: i32) -> Self {
        Self::Set(count)
    }
}

/// What a closure may return: a decision (`()` stands for "write what was changed", a number for "set it to this count"),
/// or a `Result` of one, whose error ends the write and is returned.
///
/// The error type must be able to hold a [`WriteError`] as well: `WriteError` itself, [`kube::Error`], `anyhow::Error`,
/// `Box<dyn std::error::Error + Send + Sync>`, or one's own with `#[from] WriteError`.
#[diagnostic::on_unimplemented(
    message = "a closure cannot decide with `{Self}`",
    label = "this closure returns `{Self}`",
    note = "end the closure with `;` to write what it has changed, or return a decision, or a `Result` of one whose error implements `From<WriteError> + Send`"
)]
pub trait IntoDecision<D> {
    /// The error of the whole write.
    type Error: From<WriteError> + Send;

    /// The decision, or why there is none.
    fn into_decision(self) -> Result<D, Self::Error>;
}

/// A closure that cannot fail.
macro_rules! decides {
    ($($from:ty => $decision:ty),* $(,)?) => {$(
        impl IntoDecision<$decision> for $from {
            type Error = WriteError;

            fn into_decision(self) -> Result<$decision, WriteError> {
                Ok(self.into())
            }
        }
    )*};
}

decides! {
    () => UpdateDecision,
    UpdateDecision => UpdateDecision,
    i32 => ScaleDecision,
    ScaleDecision => ScaleDecision,
    Value => Option<Value>,
    Option<Value> => Option<Value>,
    PatchDecision => PatchDecision,
}

impl<D, T: Into<D>, E: From<WriteError> + Send> IntoDecision<D> for Result<T, E> {
    type Error = E;

    fn into_decision(self) -> Result<D, E> {
        self.map(Into::into)
    }
}
