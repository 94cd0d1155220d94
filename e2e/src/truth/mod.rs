//! Truth about placing pods: random clusters and pods, what the planner says of them, and what the real kube-scheduler
//! does with them.
//!
//! The planner is asked through its documented door, `autoscaler-operator simulate`; the scheduler is asked by making
//! the objects. Nothing in here knows how either of them decides.

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
