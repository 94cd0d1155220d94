//! The three requests of a watch: a page of the list, the changes after a version, and the newest version.

use std::time::Duration;

use conflict_retry::freshness::Version;
use futures::{Stream, StreamExt as _};
use kube::api::{ListParams, WatchParams};
use kube::core::{Request, WatchEvent};
use kube::runtime::watcher::Config;
use kube::{Api, Client, Resource};
use serde::Deserialize;
use serde::de::{DeserializeOwned, IgnoredAny};

use super::Failure;
use super::decode::Decoded;

/// Objects per page of a list. client-go has 500; a page is decoded as a whole, with the managed fields that are
/// dropped afterwards, which is some 60 KB for a pod: 500 were half of an operator's memory while it ran.
const PAGE: u32 = 50;

/// Objects per page of a live list, on which a pass waits: ten times as many, to wait less often.
const LIVE_PAGE: u32 = 500;

/// Timeout of a page. The API server lets a request wait for its turn up to 15 s (priority and fairness, a quarter of
/// `--request-timeout`).
const PAGE_LIMIT: Duration = Duration::from_secs(30);

/// Timeout of the request for the newest version: while it is open, it is not known whether the cache is current.
const NEWEST_LIMIT: Duration = Duration::from_secs(5);

/// Timeout of the start of a watch's answer: the API server sends its headers at once.
const OPEN_LIMIT: Duration = Duration::from_secs(10);

/// No object has this name: it would have to end in a letter or a digit.
const NO_NAME: &str = "metadata.name=-";

/// One complete list of `K`, with every object decoded separately, as a `W`.
pub(crate) async fn list<K, W>(api: &Api<K>, params: &ListParams) -> Result<Vec<Decoded<W>>, kube::Error>
where
    K: Resource + Clone,
    W: DeserializeOwned,
{
    let request = Request::new(api.resource_url()).list(params).map_err(kube::Error::BuildRequest)?;
    let page: Page<W> = api.clone().into_client().request(request).await?;
    Ok(page.items())
}

/// Like [`list`], in pages: `keep` makes each object smaller before the next page is read.
pub(crate) async fn list_in_pages<K, W>(
    api: &Api<K>,
    params: &ListParams,
    keep: fn(&mut W),
) -> Result<Vec<Decoded<W>>, kube::Error>
where
    K: Resource + Clone,
    W: DeserializeOwned,
{
    let mut params = params.clone().limit(LIVE_PAGE);
    let mut listed = Vec::new();
    loop {
        let request = Request::new(api.resource_url()).list(&params).map_err(kube::Error::BuildRequest)?;
        let page: Page<W> = api.clone().into_client().request(request).await?;
        params.continue_token = page.next().map(ToOwned::to_owned);
        listed.extend(page.items().into_iter().map(|mut object| {
            if let Decoded::Read(object) = &mut object {
                keep(object);
            }
            object
        }));
        if params.continue_token.is_none() {
            return Ok(listed);
        }
    }
}

/// Kind and selectors of the objects.
#[derive(Clone)]
pub(super) struct Requests {
    client: Client,
    request: Request,
    labels: Option<String>,
    fields: Option<String>,
}

/// A page of a list.
#[derive(Debug, Deserialize)]
#[serde(bound(deserialize = "W: DeserializeOwned"))]
pub(super) struct Page<W> {
    metadata: PageMeta,
    #[serde(default = "Option::default")]
    items: Option<Vec<Decoded<W>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct PageMeta {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

impl<W> Page<W> {
    /// The version of the whole list.
    pub(super) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_deref().filter(|version| !version.is_empty())
    }

    /// Its objects; some servers send `null` where there are none.
    pub(super) fn items(self) -> Vec<Decoded<W>> {
        self.items.unwrap_or_default()
    }

    /// The continue token of the next page.
    pub(super) fn next(&self) -> Option<&str> {
        self.metadata.next.as_deref().filter(|next| !next.is_empty())
    }
}

impl Requests {
    /// Requests for the objects that `api` and the selectors of `config` name.
    pub(super) fn new<W: Resource>(api: Api<W>, config: &Config) -> Self {
        let request = Request::new(api.resource_url());
        Self {
            client: api.into_client(),
            request,
            labels: config.label_selector.clone(),
            fields: config.field_selector.clone(),
        }
    }

    fn list(&self, fields: Option<String>) -> ListParams {
        ListParams { label_selector: self.labels.clone(), field_selector: fields, ..ListParams::default() }
    }

    /// A page of a list that contains at least everything that was written before it began.
    pub(super) async fn page<W: DeserializeOwned>(&self, next: Option<&str>) -> Result<Page<W>, Failure> {
        let mut params = self.list(self.fields.clone()).limit(PAGE);
        params.continue_token = next.map(ToOwned::to_owned);
        let request =
            self.request.list(&params).map_err(|failed| Failure::List(kube::Error::BuildRequest(failed)))?;
        tokio::time::timeout(PAGE_LIMIT, self.client.request(request))
            .await
            .map_err(|_elapsed| Failure::SlowList(PAGE_LIMIT))?
            .map_err(Failure::List)
    }

    /// A version that is at least as new as everything written before now. A list without objects: the API server
    /// answers it from its watch cache, after it has made sure that this is up to date (Kubernetes 1.31; before, it
    /// asks etcd).
    pub(super) async fn newest(&self) -> Result<Option<Version>, Failure> {
        let fields = self.fields.iter().map(String::as_str).chain([NO_NAME]).collect::<Vec<_>>().join(",");
        let request = self
            .request
            .list(&self.list(Some(fields)))
            .map_err(|failed| Failure::List(kube::Error::BuildRequest(failed)))?;
        let page: Page<IgnoredAny> = tokio::time::timeout(NEWEST_LIMIT, self.client.request(request))
            .await
            .map_err(|_elapsed| Failure::SlowList(NEWEST_LIMIT))?
            .map_err(Failure::List)?;
        Ok(page.version().and_then(Version::parse))
    }

    /// The changes after `version`, for `seconds`.
    pub(super) async fn changes<W>(
        &self,
        version: &str,
        seconds: u32,
    ) -> Result<impl Stream<Item = Result<WatchEvent<Decoded<W>>, Failure>> + Send + use<W>, Failure>
    where
        W: DeserializeOwned + Clone + Send + 'static,
    {
        let params = WatchParams {
            label_selector: self.labels.clone(),
            field_selector: self.fields.clone(),
            timeout: Some(seconds),
            bookmarks: true,
            send_initial_events: false,
        };
        let request = self
            .request
            .watch(&params, version)
            .map_err(|failed| Failure::Watch(kube::Error::BuildRequest(failed)))?;
        let opened = tokio::time::timeout(OPEN_LIMIT, self.client.request_events::<Decoded<W>>(request));
        let events =
            opened.await.map_err(|_elapsed| Failure::Unopened(OPEN_LIMIT))?.map_err(Failure::Watch)?;
        Ok(events.map(|event| event.map_err(Failure::Watch)))
    }
}
