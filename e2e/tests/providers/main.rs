//! Pools whose machines are made by something else than the operator: a program, real kubelets, Karpenter, Cluster API. The
//! real controllers of others need much of the machine, so these tests are not among those that measure conflicts.

mod another_cluster;
mod cluster_api;
mod deletions;
mod exec;
mod failing;
mod hpa;
mod karpenter;
mod lost;
mod real_nodes;
