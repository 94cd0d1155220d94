//! Field ownership of `spec.replicas`, which two endpoints write.
//!
//! It matters because ownership is stored: a write that changes only an entry of `managedFields` moves the version.

/// The entries of `managedFields` that name `spec.replicas`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CountOwners {
    /// The entry of the writer of the object, together with its other fields.
    main: bool,
    /// A second entry of the same writer that holds only the count. A write of `/scale` that does not change the count
    /// splits it off, and the next write of any kind overlooks and drops it, because both entries have the same name.
    stray: bool,
    /// The entry of the writer of `/scale`.
    scale: bool,
}

impl CountOwners {
    /// After a write to `/status`.
    pub(super) fn read_again(self) -> Self {
        Self { stray: false, ..self }
    }

    /// After a write to the object.
    pub(super) fn written(self, old: Option<i32>, new: Option<i32>) -> Self {
        match new {
            _ if old == new => self.read_again(),
            None => Self::default(),
            Some(_) => Self { main: true, ..Self::default() },
        }
    }

    /// After a write to `/scale`, where 0 is the same as absent.
    pub(super) fn scaled(self, old: Option<i32>, new: i32) -> Self {
        if old == Some(new) {
            Self { main: false, stray: self.main, scale: self.scale }
        } else {
            Self { scale: new != 0, ..Self::default() }
        }
    }
}
