//! A model of what the API server does with one custom resource that several writers share, and of those writers.
//!
//! [`server`] is pure, small enough for a model checker, and says the same as a real kube-apiserver:
//! `e2e/tests/conformance.rs` sends both the same random requests and compares every answer. [`writers`] lets two or
//! three writers that follow the front door of `conflict-retry` meet on that server in every order there is, with lost
//! answers, late requests, crashes, lagging caches and a namesake that takes the object's place.
//!
//! Nothing here talks to a cluster, sleeps, or is used by an operator.
//!
//! # Which invariant is held where
//!
//! | | the invariant | checked |
//! |---|---|---|
//! | I1 | an effect that was stored stays | here |
//! | I2 | an effect is stored at most once, whatever answers were lost | here |
//! | I3 | a PUT is made from the version right before it | here; on a real server by the audit log (`e2e::chain`) |
//! | I4 | success means a stored write, or a goal that was met | here |
//! | I5 | what is read after a conflict is newer than what was refused | here |
//! | I6 | an error that no retry mends ends the run | here for the errors of a PUT; all of them in `conflict-retry`'s tests |
//! | I7 | attempts are bounded | here; the deadline, and no wait after the last attempt, in `conflict-retry`'s policy tests |
//! | I8 | a cancelled run says so | here; that it does at once, in `conflict-retry`'s retry tests |
//! | I9 | one run writes to one object, not to its namesake | here |
//! | I10 | nobody changes a field of somebody else | `e2e::effects`, from the audit log |
//! | I11 | writing status never moves `generation` | here and in conformance; that `observedGeneration` only grows is the operators' |
//! | I12 | after the last fault the goal is reached and nothing is written any more | here every end is a good one; of the operators, `e2e` |
//! | I13 | giving up is said, and "nothing was written" is true | here; the metric in `shared-runtime` |
//! | I14 | nothing is sent that would change nothing | here |
//!
//! [`operators`] has the pair of objects that the operators share: nodes that are named, and a count that is written after.
//! Its promises are L1 to L4: no write of the user's is undone by what was decided before it; a list is not replaced by a
//! predecessor's; nodes go by no list but that of the decision whose count is there, or of one made from this
//! very spec; and no other node than the list meant. Each has a mutant that breaks it, one guard taken away, and all were
//! broken without the guards.

pub mod operators;
pub mod server;
pub mod writers;
