//! Tests of whole plans, case by case and over random histories.

mod another_cluster_tests;
mod blocked_drain_tests;
mod deletion_tests;
mod disturbance;
mod duties_tests;
mod hard_age_tests;
mod invariant_tests;
mod join_tests;
mod load_balancer_tests;
mod model_cluster;
mod model_writes;
mod orphan_tests;
mod plan_tests;
mod removal_tests;
mod repair_tests;
mod revision_tests;
mod rollout_tests;
mod settled_tests;
mod sized_tests;
mod start_tests;
mod surge_tests;
mod unread_tests;
mod visits_tests;

use std::collections::BTreeSet;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use shared_crds::conditions::Reason;
use shared_crds::v1alpha1::{DisruptionReason, RolloutSpec, RolloutType};
use shared_crds::{NodePool, names};

use crate::assess::health;
use crate::assess::membership::Member;
use crate::assess::outdated::OutdatedCriteria;
use crate::plan::patches;
use crate::{
    Blocker, ClusterReadiness, DrainStep, NodeAction, NodeStep, Observed, ObservedPods, Plan, PodReads,
    PoolKey, PoolStep, RepairWait, Supply, classify, plan, ready, testing,
};
