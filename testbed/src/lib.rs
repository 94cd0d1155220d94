//! Runs a real Kubernetes control plane and Tandem's operators on it: the harness of the end-to-end tests, the conflict
//! lab and the demo.
//!
//! [`cluster`] provides a cluster, [`operators`] runs the operators against it, [`audit`] reads the API server's audit
//! log, [`request_costs`] and [`lost_update_check`] evaluate it, [`scheduler_conformance`] compares the planner with
//! kube-scheduler, and [`mod@wait`] polls instead of sleeping. Everything that is started ends with the test, however
//! the test ends: see [`process_supervisor`].

pub mod admission_webhook;
pub mod audit;
pub mod borrowed;
pub mod cluster;
pub mod cluster_api;
pub mod concurrent_writer;
pub mod control_plane;
pub mod crashes;
mod debian;
pub mod demo;
pub mod end_state;
pub mod external_metrics;
pub mod fault_proxy;
pub mod file_lock;
pub mod frozen;
pub mod guards;
pub mod history;
pub mod karpenter;
pub mod kind;
pub mod lossy_proxy;
pub mod lost_update_check;
pub mod machines;
pub mod memory;
pub mod nodes_over_time;
pub mod objects;
pub mod operators;
pub mod pages;
pub mod places;
pub mod played_kubelets;
pub mod process_supervisor;
pub mod programs;
pub mod prometheus_operator;
pub mod real_nodes;
pub mod request_costs;
pub mod scheduler_conformance;
pub mod soak;
pub mod takeover;
pub mod tandem;
pub mod terms;
pub mod test_env;
pub mod wait;
pub mod waiting;
pub mod write_effects;
pub mod write_gate;
