//! What Karpenter said about a `NodeClaim` that is gone.

use k8s_openapi::api::core::v1::Event;
use kube::Api;
use kube::api::ListParams;
use shared_runtime::error::chain;
use tracing::debug;

use super::node_claim::explanation;
use crate::Explanation;

/// The events of one claim that are read at most: Karpenter repeats them as a series, so there are few.
const MOST: u32 = 50;

/// Karpenter's last warning about the claim with this UID, which names `node_class`; `None` without one, or when events cannot
/// be read: then the reason is in Karpenter's log alone.
pub(super) async fn last_warning(events: &Api<Event>, uid: &str, node_class: &str) -> Option<Explanation> {
    let of_claim = format!("involvedObject.kind=NodeClaim,involvedObject.uid={uid},type=Warning");
    let listed = events.list(&ListParams::default().fields(&of_claim).limit(MOST)).await;
    let all = listed.map_or_else(
        |error| {
            debug!(error = %chain(&error), "the events of a NodeClaim cannot be read");
            Vec::new()
        },
        |list| list.items,
    );
    let time = |event: &Event| {
        let last = event.last_timestamp.as_ref().map(|time| time.0);
        last.or_else(|| event.event_time.as_ref().map(|time| time.0))
    };
    let last = all.into_iter().max_by_key(time)?;
    let (reason, message) = (last.reason.unwrap_or_default(), last.message.unwrap_or_default());
    Some(explanation(&reason, format!("{reason}: {message}"), node_class))
}
