//! Where a write takes the object from that its decision is based on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Where a write takes the object from that its decision is based on, at first and after a conflict.
pub enum Source<'a, T> {
    /// A live read before each attempt. Always correct, at the cost of one more request.
    Live,
    /// This copy first, a live read after a conflict. Suitable for a copy that was just read, and for a cache that is
    /// seldom behind; when it is, the first attempt is wasted.
    Copy(T),
    /// A cache fed by a watch: its copy first, and after a conflict the version that the winner wrote, which the watch
    /// brings without a request. It reads live only when the watch does not bring that version in time, or when the
    /// cache is behind our own writes.
    Watched(&'a dyn CachedObject<T>),
}

impl<T> fmt::Debug for Source<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Live => "Live",
            Self::Copy(_) => "Copy",
            Self::Watched(_) => "Watched",
        })
    }
}

impl<T: Clone> From<&Arc<T>> for Source<'_, T> {
    /// Uses a copy of the object, such as the one that a reconciler is given.
    fn from(copy: &Arc<T>) -> Self {
        Self::Copy(T::clone(copy))
    }
}

impl<T: Clone> From<Arc<T>> for Source<'_, T> {
    /// Uses the object, or a copy of it if it is shared.
    fn from(copy: Arc<T>) -> Self {
        Self::Copy(Arc::unwrap_or_clone(copy))
    }
}

impl<T: Clone> From<&T> for Source<'_, T> {
    /// Uses a copy of the object.
    fn from(copy: &T) -> Self {
        Self::Copy(copy.clone())
    }
}

impl<T: Clone> From<Option<Arc<T>>> for Source<'_, T> {
    /// Uses the object, as a store returns it, if there is one, and reads live otherwise.
    fn from(copy: Option<Arc<T>>) -> Self {
        copy.map_or(Self::Live, Self::from)
    }
}

impl<T> From<Option<T>> for Source<'_, T> {
    /// Uses the copy if there is one, and reads live otherwise.
    fn from(copy: Option<T>) -> Self {
        copy.map_or(Self::Live, Self::Copy)
    }
}

/// The future that [`CachedObject::newer`] returns.
pub type Newer<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// One object in a cache that a watch keeps up to date.
pub trait CachedObject<T>: Send + Sync {
    /// The newest copy; `None` when the cache has none, or when it is older than our own last write of the object.
    fn latest(&self) -> Option<T>;

    /// Waits until the cache holds a version other than `version` that is not older; `None` as soon as the cache has no
    /// copy. It may wait forever: the caller sets the time limit.
    fn newer(&self, version: String) -> Newer<'_, T>;

    /// Records that our write was acknowledged and that `written` was stored.
    fn wrote(&self, written: &T);
}
