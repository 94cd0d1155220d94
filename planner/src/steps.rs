//! How much the planner does, in steps, for those who judge how its work grows with the cluster: a time says as much about
//! the machine as about the planner. No plan depends on it.
//!
//! A step is a visit: of a pod, of a node, of an entry of an index or of another list, each about as dear as a look into
//! memory. They are counted where the number of visits depends on the size of the cluster, in one addition for a whole
//! loop where its length is known.

use std::cell::Cell;

thread_local! {
    /// A thread plans one pass at a time, and every loop of it can reach this without that each function hands it on.
    static TAKEN: Cell<u64> = const { Cell::new(0) };
}

/// How many steps this thread has taken since it began. It wraps around: take differences with `wrapping_sub`.
pub fn taken() -> u64 {
    TAKEN.get()
}

/// Counts steps.
pub(crate) fn count(steps: usize) {
    TAKEN.set(TAKEN.get().wrapping_add(steps as u64));
}

/// The items of `all`, each of which is a step.
pub(crate) fn counted<I: Iterator>(all: I) -> impl Iterator<Item = I::Item> {
    all.inspect(|_| count(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_counts_its_own_steps() {
        let before = taken();
        count(3);
        assert_eq!(counted([1, 2].into_iter()).sum::<i32>(), 3);
        std::thread::spawn(|| count(100)).join().unwrap();
        assert_eq!(taken().wrapping_sub(before), 5);
    }
}
