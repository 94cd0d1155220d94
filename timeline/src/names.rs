//! The names of writers and objects on the page.

use std::collections::HashMap;

use crate::line::LoggedRequest;
use crate::model::{Object, Writer};

/// Identifies a writer, like [`crate::line::Head::writer`] does.
pub(crate) fn key(request: &LoggedRequest) -> (String, String) {
    let who = request.actor.as_ref().map_or_else(|| request.user.clone(), |actor| format!("\n{actor}"));
    (who, request.agent.clone())
}

/// The writers in the order of their first requests, and the index of each by its key.
pub(crate) fn writers(
    requests: &[LoggedRequest],
    setup_user: Option<&str>,
) -> (HashMap<(String, String), usize>, Vec<Writer>) {
    let mut keys = HashMap::new();
    let mut all: Vec<Writer> = Vec::new();
    for request in requests {
        keys.entry(key(request)).or_insert_with(|| {
            let is_admin = request.actor.is_none() && setup_user == Some(request.user.as_str());
            let is_setup = is_admin && request.agent.is_empty();
            let name = match &request.actor {
                Some(actor) => actor.clone(),
                None if is_setup => "setup".to_owned(),
                None => short(&request.user),
            };
            all.push(Writer {
                name,
                user: request.user.clone(),
                agent: request.agent.clone(),
                setup: is_setup,
                ..Writer::default()
            });
            all.len() - 1
        });
    }
    let mut shared: HashMap<String, usize> = HashMap::new();
    for writer in &all {
        *shared.entry(writer.name.clone()).or_default() += 1;
    }
    for writer in &mut all {
        if shared.get(&writer.name).is_some_and(|count| *count > 1) {
            let agent = if writer.agent.is_empty() { "no user agent" } else { &writer.agent };
            writer.name = format!("{} · {agent}", writer.name);
        }
    }
    (keys, all)
}

/// A service account as `namespace/name`, any other user by its name.
fn short(user: &str) -> String {
    match user.strip_prefix("system:serviceaccount:") {
        Some(account) => account.replacen(':', "/", 1),
        None if user.is_empty() => "(no user)".to_owned(),
        None => user.to_owned(),
    }
}

/// The index of a request's object, which is added if it is new.
pub(crate) fn object(
    request: &LoggedRequest,
    objects: &mut Vec<Object>,
    known: &mut HashMap<(String, String, String, String), usize>,
) -> usize {
    let of = &request.object;
    let key = (of.api_group.clone(), of.resource.clone(), of.namespace.clone(), of.name.clone());
    *known.entry(key).or_insert_with(|| {
        let name = if of.name.is_empty() { "(no name in the log)" } else { &of.name };
        objects.push(Object {
            name: format!("{}/{name}", of.resource),
            group: of.api_group.clone(),
            resource: of.resource.clone(),
            namespace: of.namespace.clone(),
            requests: 0,
            conflicts: 0,
        });
        objects.len() - 1
    })
}
