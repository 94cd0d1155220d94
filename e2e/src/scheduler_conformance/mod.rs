//! Compares the planner with the real kube-scheduler on random clusters and pods.
//!
//! The planner is called through its documented interface, `autoscaler-operator simulate`; the scheduler is called by
//! creating the objects. Nothing in here knows how either of them decides.

pub mod batch;
pub mod blind;
pub mod dice;
pub mod objects;
pub mod planner;
pub mod pods;
pub mod question;
pub mod rules;
pub mod score;
pub mod stage;
pub mod storage;
pub mod terrain;
pub mod world;
