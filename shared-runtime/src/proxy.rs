//! Which proxy, if any, is used for the API server. Pure: the environment is an argument.
//!
//! The rules are kubectl's. The kubeconfig's `proxy-url` of a cluster always applies; the environment (`HTTPS_PROXY`,
//! `NO_PROXY`) applies only where the kubeconfig has none, and never to this machine itself. kube has rules too, but
//! compares `NO_PROXY` with the address of the proxy instead of the server's.

use std::net::IpAddr;

use http::Uri;
use hyper_util::client::proxy::matcher::Matcher;
use kube::config::Kubeconfig;

/// The configured proxy cannot be used.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "cannot use the proxy that {named_by} names; it must look like http://HOST:PORT or socks5://HOST:PORT"
)]
pub struct InvalidProxy {
    named_by: &'static str,
}

/// `proxy-url` of the cluster that `context` (or else the current context) of a kubeconfig names.
pub(crate) fn of_kubeconfig(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<String> {
    let wanted = context.or(kubeconfig.current_context.as_deref())?;
    let context = kubeconfig.contexts.iter().find(|context| context.name == wanted)?.context.as_ref()?;
    let cluster = kubeconfig.clusters.iter().find(|cluster| cluster.name == context.cluster)?;
    cluster.cluster.as_ref()?.proxy_url.clone().filter(|url| !url.is_empty())
}

/// The proxy for `server`; `configured` is the kubeconfig's, `env` looks up a variable.
pub(crate) fn choose(
    configured: Option<&str>,
    server: &Uri,
    env: impl Fn(&str) -> Option<String>,
) -> Result<Option<Uri>, InvalidProxy> {
    if let Some(url) = configured {
        return parse(url, "proxy-url of the kubeconfig").map(Some);
    }
    let (upper, lower) = match server.scheme_str() {
        Some("http") => ("HTTP_PROXY", "http_proxy"),
        _ => ("HTTPS_PROXY", "https_proxy"),
    };
    let either = |upper, lower| [upper, lower].into_iter().filter_map(&env).find(|value| !value.is_empty());
    let Some(url) = either(upper, lower) else { return Ok(None) };
    if is_this_machine(server) || is_excepted(server, &either("NO_PROXY", "no_proxy").unwrap_or_default()) {
        return Ok(None);
    }
    parse(&url, upper).map(Some)
}

fn parse(url: &str, named_by: &'static str) -> Result<Uri, InvalidProxy> {
    // As in kubectl: without a scheme it is an HTTP proxy.
    let url = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = url.parse().map_err(|_| InvalidProxy { named_by })?;
    match uri.scheme_str() {
        Some("http" | "socks5") if uri.host().is_some_and(|host| !host.is_empty()) => Ok(uri),
        _ => Err(InvalidProxy { named_by }),
    }
}

fn is_this_machine(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    host.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback())
}

/// Whether a list such as `10.0.0.0/8,.example.org` contains `server`.
fn is_excepted(server: &Uri, list: &str) -> bool {
    // The library returns a proxy where the list does not match; which one does not matter here.
    Matcher::builder().all("http://proxy.invalid").no(list).build().intercept(server).is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVER: &str = "https://api.example.org:6443";

    fn chosen(
        configured: Option<&str>,
        server: &str,
        env: &[(&str, &str)],
    ) -> Result<Option<String>, InvalidProxy> {
        let env = |name: &str| env.iter().find(|(known, _)| *known == name).map(|(_, v)| (*v).to_owned());
        let uri = choose(configured, &server.parse().unwrap(), env)?;
        Ok(uri.map(|uri| uri.to_string()))
    }

    #[test]
    fn the_kubeconfig_wins_over_the_environment_and_knows_no_exceptions() {
        let env = [("HTTPS_PROXY", "http://other:1"), ("NO_PROXY", "*")];
        assert_eq!(chosen(Some("http://p:3128"), SERVER, &env), Ok(Some("http://p:3128/".to_owned())));
        assert_eq!(
            chosen(Some("socks5://p:1080"), "https://127.0.0.1:1", &[]),
            Ok(Some("socks5://p:1080/".to_owned()))
        );
    }

    #[test]
    fn the_environment_names_a_proxy_for_each_scheme() {
        let env = [("https_proxy", "p:3128"), ("HTTP_PROXY", "http://q:3128")];
        assert_eq!(chosen(None, SERVER, &env), Ok(Some("http://p:3128/".to_owned())));
        assert_eq!(chosen(None, "http://api.example.org", &env), Ok(Some("http://q:3128/".to_owned())));
        assert_eq!(chosen(None, SERVER, &[("HTTPS_PROXY", "")]), Ok(None));
        assert_eq!(chosen(None, SERVER, &[]), Ok(None));
    }

    #[test]
    fn no_proxy_is_held_against_the_server_and_not_against_the_proxy() {
        let with = |list| [("HTTPS_PROXY", "http://proxy.example.org:3128"), ("NO_PROXY", list)];
        for list in ["api.example.org", ".example.org,", "other, example.org", "*"] {
            assert_eq!(chosen(None, SERVER, &with(list)), Ok(None), "{list}");
        }
        for list in ["proxy.example.org", "10.0.0.0/8", "pi.example.org", ""] {
            assert!(chosen(None, SERVER, &with(list)).unwrap().is_some(), "{list}");
        }
        assert_eq!(chosen(None, "https://10.1.2.3:6443", &with("10.0.0.0/8")), Ok(None));
    }

    #[test]
    fn this_machine_is_never_reached_through_the_environments_proxy() {
        let env = [("HTTPS_PROXY", "http://p:3128")];
        for server in ["https://127.0.0.1:6443", "https://localhost:6443", "https://[::1]:6443"] {
            assert_eq!(chosen(None, server, &env), Ok(None), "{server}");
        }
    }

    #[test]
    fn what_is_no_proxy_is_refused_with_where_it_stands_and_without_its_password() {
        for url in ["https://u:secret@p:1", "ftp://p", "http://", "a b"] {
            let refusal = chosen(Some(url), SERVER, &[]).unwrap_err().to_string();
            assert!(refusal.contains("proxy-url of the kubeconfig"), "{refusal}");
            assert!(refusal.contains("http://HOST:PORT or socks5://HOST:PORT"), "{refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
        let refusal = chosen(None, SERVER, &[("HTTPS_PROXY", "https://p:1")]).unwrap_err().to_string();
        assert!(refusal.contains("HTTPS_PROXY"), "{refusal}");
    }

    #[test]
    fn the_proxy_is_that_of_the_context_in_use() {
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({
            "current-context": "near",
            "clusters": [
                { "name": "a", "cluster": { "server": SERVER } },
                { "name": "b", "cluster": { "server": SERVER, "proxy-url": "http://p:1" } },
            ],
            "contexts": [
                { "name": "near", "context": { "cluster": "a", "user": "u" } },
                { "name": "far", "context": { "cluster": "b", "user": "u" } },
            ],
        }))
        .unwrap();
        assert_eq!(of_kubeconfig(&kubeconfig, None), None);
        assert_eq!(of_kubeconfig(&kubeconfig, Some("far")).as_deref(), Some("http://p:1"));
        assert_eq!(of_kubeconfig(&kubeconfig, Some("nowhere")), None);
    }
}
