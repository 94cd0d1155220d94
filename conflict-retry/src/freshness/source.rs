//! Where a write takes the object from that it decides on.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

/// Where a write takes the object from that it decides on, the first time and after a conflict.
pub enum Source<'a, T> {
    /// A live read, before each attempt. Always right, one request more than needed.
    Live,
    /// This copy first, a live read after a conflict. Right for a copy that was read a moment ago, and for a cache that is
    /// seldom behind; when it is, the first attempt is wasted.
    Copy(T),
    /// A cache fed by a watch: its copy first, and after a conflict the version that the winner wrote, which the watch
    /// brings without a request. A live read only when the watch does not bring it in time, and when the cache is behind
    /// our own writes.
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

impl<T> From<Option<T>> for Source<'_, T> {
    /// A copy if there is one.
    fn from(copy: Option<T>) -> Self {
        copy.map_or(Self::Live, Self::Copy)
    }
}

/// What [`CachedObject::newer`] comes to.
pub type Newer<'a, T> = Pin<Box<dyn Future<Output = Option<T>> + Send + 'a>>;

/// One object in a cache that a watch keeps up to date.
pub trait CachedObject<T>: Send + Sync {
    /// The newest copy; `None` when there is none, or when it is older than our own last write of the object.
    fn latest(&self) -> Option<T>;

    /// Waits until the cache holds another version than `version`, and not an older one; `None` as soon as it holds none
    /// at all. It may wait for ever: the caller bounds it.
    fn newer(&self, version: String) -> Newer<'_, T>;

    /// Our write was acknowledged and this is what was stored.
    fn wrote(&self, written: &T);
}
