//! Compares the planner with the real kube-scheduler on random clusters and pods.
//!
//! The planner is called through its documented interface, `autoscaler-operator simulate`; the scheduler is called by
//! creating the objects. Nothing in here knows how either of them decides.

pub mod batch;
pub mod ignored_feature;
pub mod infrastructure;
pub mod kind_cluster;
pub mod kinds;
pub mod objects;
pub mod planner;
pub mod pods;
pub mod question;
pub mod random_cluster;
pub mod rules;
pub mod scheduler_env;
pub mod score;
pub mod seeded_rng;
pub mod sharing;
pub mod storage;
