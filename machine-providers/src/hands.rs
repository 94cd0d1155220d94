//! The hands of the contract: what can be done to the world behind a maker, whatever it makes machines of.
//!
//! Each maker implements [`Hands`] once, beside its own tests. What has to hold is in `trouble_contract_tests`.

use std::sync::Arc;

use http::{Response, request};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};
use shared_crds::v1alpha1::ProviderSpec;

use crate::provisioner::Provisioner;
use crate::testing::failure;

/// The name of the machine that [`Trouble::Stranger`] adds.
pub(crate) const STRANGER: &str = "theirs";
/// The name of the machine that [`Trouble::GhostList`] shows.
pub(crate) const GHOST: &str = "another-pools-machine";

/// What goes wrong behind a maker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// A machine is made, or a number is raised, and the answer does not arrive.
    LostCreation,
    /// A machine is deleted, or a number is lowered, and the answer does not arrive.
    LostDeletion,
    /// No request about the pool `default/web` is answered. Those about the pool `other/web` are.
    Silence,
    /// A list is answered with an error.
    FailedList,
    /// A list ends in the middle of its text.
    CutList,
    /// A list shows one of two machines.
    PartialList,
    /// A list shows no machine.
    EmptyList,
    /// A list shows a machine more, called [`GHOST`], that does not exist.
    GhostList,
    /// There is no room for another machine. The provider says so in [`Hands::no_room`].
    NoRoom,
    /// There is a machine [`STRANGER`] that was not made for the pool `default/web` of this cluster.
    Stranger,
}

impl Trouble {
    /// Every one.
    pub(crate) const ALL: [Self; 10] = [
        Self::LostCreation,
        Self::LostDeletion,
        Self::Silence,
        Self::FailedList,
        Self::CutList,
        Self::PartialList,
        Self::EmptyList,
        Self::GhostList,
        Self::NoRoom,
        Self::Stranger,
    ];
}

/// What can be done to the world behind one maker. The world has the pools `default/web` and `other/web`.
pub(crate) trait Hands {
    /// The field of `spec.provider`.
    fn maker(&self) -> &'static str;

    /// What calls the maker, as a process that has just begun.
    fn provisioner(&self) -> Provisioner;

    /// The spec that selects it.
    fn spec(&self) -> ProviderSpec;

    /// Why this trouble makes no sense for the maker; `None` when it does. Whatever has a reason here stands in the table of the
    /// contract, too.
    fn no_sense(&self, _: Trouble) -> Option<&'static str> {
        None
    }

    /// Begins the trouble, which ends with [`Self::end`].
    fn make(&self, trouble: Trouble);

    /// Ends what [`Self::make`] began. Machines stay.
    fn end(&self);

    /// Lets what was asked for come about, where others have to act for that.
    fn settle(&self) {}

    /// The names of the machines that exist for `default/web`, and of [`STRANGER`] if it exists, in order. What was done to one that
    /// shows on it comes after its name.
    fn machines(&self) -> Vec<String>;

    /// The provider's words when there is no room.
    fn no_room(&self) -> &'static str;
}

/// What an API server does with a request.
pub(crate) enum Answer {
    /// It answers with this code and this text.
    Text(u16, String),
    /// The connection ends without an answer.
    Lost,
    /// There is no answer, and the connection stays.
    Never,
}

impl From<(u16, Value)> for Answer {
    fn from((code, answer): (u16, Value)) -> Self {
        Self::Text(code, answer.to_string())
    }
}

/// A client whose API server is this function.
pub(crate) fn api_server(serve: impl Fn(request::Parts, &[u8]) -> Answer + Send + Sync + 'static) -> Client {
    let serve = Arc::new(serve);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let serve = Arc::clone(&serve);
        async move {
            let (parts, body) = request.into_parts();
            let bytes = body.collect_bytes().await.unwrap();
            match (*serve)(parts, &bytes[..]) {
                Answer::Text(code, text) => {
                    let body = Body::from(text.into_bytes());
                    Ok(Response::builder().status(code).body(body).unwrap())
                }
                Answer::Lost => Err(std::io::Error::other("the connection was closed")),
                Answer::Never => std::future::pending().await,
            }
        }
    });
    Client::new(service, "default")
}

/// What an API server in this trouble answers instead of `list`.
pub(crate) fn told(trouble: Option<Trouble>, mut list: Value) -> Answer {
    match trouble {
        Some(Trouble::FailedList) => return failure(500, "InternalError", "it is broken").into(),
        Some(Trouble::CutList) => {
            let text = list.to_string();
            return Answer::Text(200, text[..text.len() / 2].to_owned());
        }
        Some(Trouble::PartialList) => list["items"].as_array_mut().unwrap().truncate(1),
        Some(Trouble::EmptyList) => list["items"] = json!([]),
        Some(Trouble::GhostList) => {
            let mut ghost = list["items"][0].clone();
            ghost["metadata"]["name"] = json!(GHOST);
            list["items"].as_array_mut().unwrap().push(ghost);
        }
        _ => {}
    }
    (200_u16, list).into()
}
