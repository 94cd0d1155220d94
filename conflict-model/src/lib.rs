//! A model of how the API server handles one custom resource that several writers share, and of those writers.
//!
//! [`server`] is pure, small enough for a model checker, and answers like a real kube-apiserver:
//! `e2e/tests/conformance.rs` sends both the same random requests and compares every answer. [`writers`] runs two or
//! three writers that follow the write loop of `conflict-retry` on that server in every possible order, with lost
//! answers, late requests, crashes, stale caches and a recreated object of the same name.
//!
//! Nothing here talks to a cluster, sleeps, or is used by an operator.
//!
//! # Where each invariant is checked
//!
//! | | invariant | checked |
//! |---|---|---|
//! | I1 | a stored effect is not lost | here |
//! | I2 | an effect is stored at most once, whatever answers were lost | here |
//! | I3 | a PUT replaces the version it was based on | here; on a real server by the audit log (`testbed::lost_update_check`) |
//! | I4 | success means a stored write, or a met goal | here |
//! | I5 | a retry is based on a newer read than the refused write | here |
//! | I6 | an error that no retry resolves ends the run | here for a PUT's errors; all in `conflict-retry`'s tests |
//! | I7 | attempts are bounded | here; deadline and no wait after the last attempt: `conflict-retry`'s policy tests |
//! | I8 | a cancelled run reports it | here; that it does so at once, in `conflict-retry`'s retry tests |
//! | I9 | a run writes to one object only, not to another one of the same name | here |
//! | I10 | no writer changes a field of another writer | `testbed::write_effects`, from the audit log |
//! | I11 | a status write never moves `generation` | here, conformance; operators' `observedGeneration` only grows |
//! | I12 | after the last fault the goal is met and writes stop | here: every final state is correct; for the operators, `e2e` |
//! | I13 | giving up is reported, and a report that nothing was written is true | here; the metric in `shared-runtime` |
//! | I14 | no write is sent that would change nothing | here |
//!
//! [`operators`] has the pair of writes that the operators share: a list of node names, and a count that is written
//! after it. Its invariants are L1 to L4: no write of the user is undone by an earlier decision; a list is not replaced
//! by that of a previous leader; nodes are removed only by the list of the decision that wrote the current count, or of
//! a decision based on exactly this spec; and no node is removed that the list did not mean. For each invariant there
//! is a mutant that breaks it by removing one guard, and all of them were broken without the guards.

pub mod operators;
pub mod server;
pub mod writers;
