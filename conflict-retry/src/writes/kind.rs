//! The bounds of [`Write`](super::Write): what a kind of write gives, and which options it takes. Sealed.

use super::Writable;
use super::target::WriteTarget;
use super::write_loop::{Finished, Object, WriteSteps};
use crate::freshness::Source;
use crate::outcome::WriteError;

/// A kind of write: which object a [`Write`](crate::Write) gives, and which error.
///
/// Name it to pass writes on: `fn log<K: Writable, W: WriteKind<K>>(write: Write<'_, K, W>)`. The kinds are those that the
/// write functions return; it cannot be implemented outside this crate.
pub trait WriteKind<K: Writable>: Send + Sized {
    /// The object, as callers hold copies of it, and as the server answers the write: `K`, or for
    /// [`scale`](crate::scale) a [`ScaleView`](crate::ScaleView).
    type Object: Clone + Send + Sync;
    /// Why there is no outcome: [`WriteError`], or the error of the caller's closure.
    type Failure: From<WriteError> + Send;

    /// Writes until there is an outcome.
    #[doc(hidden)]
    fn carry_out(
        self,
        target: WriteTarget<'_, K>,
        source: Source<'_, Self::Object>,
    ) -> impl Future<Output = Result<Finished<Self::Object>, Self::Failure>> + Send;
}

impl<K: Writable, W: WriteSteps<K>> WriteKind<K> for W {
    type Object = Object<K, W>;
    type Failure = <W as WriteSteps<K>>::Failure;

    fn carry_out(
        self,
        target: WriteTarget<'_, K>,
        source: Source<'_, Object<K, W>>,
    ) -> impl Future<Output = Result<Finished<Object<K, W>>, <W as WriteSteps<K>>::Failure>> + Send {
        self.run(target, source)
    }
}

/// A kind of write that decides from an object that was read: [`Write::from`](crate::Write::from) says where it comes from.
/// All but [`apply`](crate::apply) and [`apply_status`](crate::apply_status) do. There is nothing to implement.
pub trait ReadsFirst {}

/// A kind of write whose caller chooses the part of the object with [`Write::on`](crate::Write::on): the object itself or
/// its status. These are [`merge_patch`](crate::merge_patch) and [`patch_at_generation`](crate::patch_at_generation). There
/// is nothing to implement.
pub trait PatchesAPart {}
