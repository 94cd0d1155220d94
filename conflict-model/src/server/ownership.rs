//! Field ownership of `status`, and server-side apply on it, according to structured-merge-diff's rules. Of the other
//! fields, only ownership that makes a write without other changes move the version.
//!
//! <https://kubernetes.io/docs/reference/using-api/server-side-apply/>

use super::count::CountOwners;
use super::status::{CONDITIONS, Conditions, Status};

/// The field manager of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Manager {
    /// The writers that PUT or patch.
    Updater,
    /// The first of the two managers that apply.
    Alpha,
    /// The second of the two managers that apply.
    Beta,
}

impl Manager {
    const ALL: [Self; 3] = [Self::Updater, Self::Alpha, Self::Beta];
}

/// A set of fields of `status`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Fields(u8);

impl Fields {
    const READY: Self = Self(1);

    /// The list of conditions itself: a PUT or a patch that creates it owns it, an apply never does.
    const LIST: Self = Self(32);

    /// The announced list.
    const ANNOUNCED: Self = Self(64);

    /// A condition's own entry, with all of its members except the value.
    const fn entry(which: usize) -> Self {
        Self(2 << (2 * which))
    }

    /// A condition's value.
    const fn value(which: usize) -> Self {
        Self(4 << (2 * which))
    }

    /// The fields that an apply of `status` owns.
    fn set_in(status: &Status) -> Self {
        Change::between(None, Some(status)).written.without(Self::LIST)
    }

    const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    const fn meets(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// The field managers of each field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Owners {
    status: [Fields; 3],
    /// The field managers of `spec.replicas`.
    pub(super) count: CountOwners,
}

impl Owners {
    fn of(self, manager: Manager) -> Fields {
        self.status[manager as usize]
    }

    fn of_others(self, manager: Manager) -> Fields {
        let others = Manager::ALL.iter().filter(|other| **other != manager);
        others.fold(Fields::default(), |all, other| all.with(self.of(*other)))
    }

    /// Written fields are taken from all other managers; removed fields from all managers.
    fn lose(&mut self, writer: Manager, change: Change) {
        for manager in Manager::ALL {
            let fields = &mut self.status[manager as usize];
            *fields = fields.without(change.removed);
            if manager != writer {
                *fields = fields.without(change.written);
            }
        }
    }

    /// After a PUT or a patch: the writer owns what it changed.
    #[must_use]
    pub fn updated(mut self, old: Option<&Status>, new: Option<&Status>) -> Self {
        let change = Change::between(old, new);
        self.lose(Manager::Updater, change);
        let own = &mut self.status[Manager::Updater as usize];
        *own = own.with(change.written);
        self.count = self.count.read_again();
        self
    }
}

/// The fields that differ.
#[derive(Clone, Copy, Default)]
struct Change {
    written: Fields,
    removed: Fields,
}

impl Change {
    fn between(old: Option<&Status>, new: Option<&Status>) -> Self {
        let mut change = Self::default();
        change.note(old.and_then(|s| s.ready), new.and_then(|s| s.ready), Fields::READY, Fields::READY);
        let announced = |status: Option<&Status>| status.and_then(|s| s.list);
        change.note(announced(old), announced(new), Fields::ANNOUNCED, Fields::ANNOUNCED);
        let list = |status: Option<&Status>| status.and_then(|s| s.conditions).map(|_| ());
        change.note(list(old), list(new), Fields::LIST, Fields::LIST);
        for which in 0..CONDITIONS {
            let (old, new) = (old.and_then(|s| s.condition(which)), new.and_then(|s| s.condition(which)));
            let value = Fields::value(which);
            change.note(old, new, value, value.with(Fields::entry(which)));
        }
        change
    }

    /// `value` is the field that differs when both are set, `whole` the fields that are added or removed with it.
    fn note<T: PartialEq>(&mut self, old: Option<T>, new: Option<T>, value: Fields, whole: Fields) {
        match (old, new) {
            (None, Some(_)) => self.written = self.written.with(whole),
            (Some(_), None) => self.removed = self.removed.with(whole),
            (Some(old), Some(new)) if old != new => self.written = self.written.with(value),
            (Some(_), Some(_)) | (None, None) => {}
        }
    }
}

/// Why an apply is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// Another manager owns a field with another value.
    Conflict,
    /// The result would be invalid: a condition without some of its members, or null for a list.
    Incomplete,
}

/// The result of applying `config` to `live` as `manager`.
pub(super) fn apply(
    live: Option<&Status>,
    mut owners: Owners,
    manager: Manager,
    force: bool,
    config: &Status,
) -> Result<(Status, Owners), Refused> {
    let mut merged = Status {
        ready: config.ready.or(live.and_then(|status| status.ready)),
        conditions: merge(live.and_then(|status| status.conditions), config.conditions),
        list: config.list.or(live.and_then(|status| status.list)),
    };
    // Fields that were applied before and are not applied any more are removed, unless another manager owns them too.
    let (last, applied, others) = (owners.of(manager), Fields::set_in(config), owners.of_others(manager));
    let goes = |field: Fields| last.without(applied).without(others).meets(field);
    if goes(Fields::READY) {
        merged.ready = None;
    }
    if goes(Fields::ANNOUNCED) {
        merged.list = None;
    }
    let (mut incomplete, mut claimed) = (false, others.meets(Fields::LIST));
    for which in 0..CONDITIONS {
        if goes(Fields::entry(which)) {
            // The whole entry, including a value that another manager has written into it since.
            merged.conditions = without(merged.conditions, which);
            // A list that is removed although another manager owns a part of it is left behind as null, which is not
            // valid.
            claimed |= others.meets(Fields::value(which));
            incomplete |= merged.conditions.is_none() && claimed;
        } else {
            incomplete |= goes(Fields::value(which));
        }
    }
    let change = Change::between(live, Some(&merged));
    if !force && others.meets(change.written) {
        return Err(Refused::Conflict);
    }
    if incomplete {
        return Err(Refused::Incomplete);
    }
    owners.lose(manager, change);
    owners.status[manager as usize] = applied;
    owners.count = owners.count.read_again();
    // A different order alone changes no field and no ownership, but it is stored.
    Ok((merged, owners))
}

/// Entries of `live` keep their place unless `config` names them in another order; new ones are appended.
fn merge(live: Option<Conditions>, config: Option<Conditions>) -> Option<Conditions> {
    let (Some(live), Some(config)) = (live, config) else { return live.or(config) };
    let [first, second] = config.values;
    let values = [first.or(live.values[0]), second.or(live.values[1])];
    let swapped = match (first, second) {
        (Some(_), Some(_)) => config.swapped,
        // The second one existed already.
        (Some(_), None) if live.values[0].is_none() => live.values[1].is_some(),
        _ => live.swapped,
    };
    Some(Conditions { values, swapped })
}

/// A list that loses its last entry is removed.
fn without(conditions: Option<Conditions>, which: usize) -> Option<Conditions> {
    let mut values = conditions?.values;
    values[which] = None;
    values.iter().any(Option::is_some).then_some(Conditions { values, swapped: false })
}
