//! Whether what a connection was made from is still current. kube reads a kubeconfig, the certificates and keys that it names, and
//! the client certificate of its credential plugin once, when a client is made. It renews by itself the tokens of plugins and of
//! token files, and in a Pod the token and the certificate authority of the service account.
//!
//! The connection to another cluster is made anew ([`crate::other_cluster`]). The operator's own is in every cache and writer, so the
//! process ends in order, and the next one reads everything anew.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kube::Client;
use kube::config::Kubeconfig;

use crate::cli::ConnectionArgs;
use crate::client;
use crate::clock::Clock;

/// How long before its end a client certificate is given up: longer than the longest request runs (65 s).
const MARGIN: SignedDuration = SignedDuration::from_secs(70);

/// How often the operator looks at its own credentials. kube reads a token file again as often.
const INTERVAL: Duration = Duration::from_secs(60);

/// Tells the credentials of a connection from others. They cannot be read from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fingerprint(u64);

impl Fingerprint {
    /// That of the cluster and the user of `context`, or of the current one, with the certificates and keys in the files that they name.
    /// `None` while something of that is not there: it may be about to be replaced.
    pub(crate) fn of(kubeconfig: &Kubeconfig, context: Option<&str>) -> Option<Self> {
        let name = context.or(kubeconfig.current_context.as_deref())?;
        let context = kubeconfig.contexts.iter().find(|named| named.name == name)?.context.as_ref()?;
        let cluster =
            kubeconfig.clusters.iter().find(|named| named.name == context.cluster)?.cluster.as_ref()?;
        // kube connects without credentials where the user is missing.
        let is_user = |name: &&String| !name.is_empty();
        let user = context.user.as_ref().filter(is_user).and_then(|name| {
            kubeconfig.auth_infos.iter().find(|named| named.name == *name)?.auth_info.as_ref()
        });
        let mut hasher = DefaultHasher::new();
        serde_json::to_value(cluster).ok()?.hash(&mut hasher);
        serde_json::to_value(user).ok()?.hash(&mut hasher);
        // Data in the kubeconfig comes before a file, which need not be there then.
        let unless = |data: bool, file: &Option<String>| file.clone().filter(|_| !data);
        let authority = unless(cluster.certificate_authority_data.is_some(), &cluster.certificate_authority);
        let certificate =
            user.and_then(|user| unless(user.client_certificate_data.is_some(), &user.client_certificate));
        let key = user.and_then(|user| unless(user.client_key_data.is_some(), &user.client_key));
        for file in [authority, certificate, key].into_iter().flatten() {
            std::fs::read(file).ok()?.hash(&mut hasher);
        }
        Some(Self(hasher.finish()))
    }
}

/// Whether the client certificate that a credential plugin has issued for `client` is about to run out.
pub(crate) fn runs_out(client: &Client, now: Timestamp) -> bool {
    client.valid_until().is_some_and(|end| end.duration_since(now) <= MARGIN)
}

/// Why the operator's own credentials are not current any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StaleCredentials {
    /// Their files have another content.
    #[error("the kubeconfig, or a certificate or key that it names, has changed")]
    Changed,
    /// A credential plugin has to issue another certificate.
    #[error("the client certificate of the kubeconfig's credential plugin runs out")]
    RunOut,
}

/// The operator's own credentials, as they were when this was made.
pub(crate) struct OwnCredentials {
    args: ConnectionArgs,
    was: Option<Fingerprint>,
}

impl OwnCredentials {
    /// Those that a connection with `args` is made from: to be called before it is made, so that no change is missed.
    pub(crate) fn new(args: &ConnectionArgs) -> Self {
        let mut args = args.clone();
        let kubeconfig = client::kubeconfig(&args).ok().flatten();
        // That a user makes another context the current one is no change of this one.
        if let Some(kubeconfig) = &kubeconfig
            && args.context.is_none()
        {
            args.context.clone_from(&kubeconfig.current_context);
        }
        let was = kubeconfig.and_then(|kubeconfig| Fingerprint::of(&kubeconfig, args.context.as_deref()));
        Self { args, was }
    }

    /// Returns when the credentials of `client` are not current any more: never in a Pod that uses its service account.
    pub(crate) async fn stale(&self, client: &Client, clock: &Clock) -> StaleCredentials {
        loop {
            tokio::time::sleep(INTERVAL).await;
            if runs_out(client, clock.now()) {
                return StaleCredentials::RunOut;
            }
            if self.has_changed() {
                return StaleCredentials::Changed;
            }
        }
    }

    fn has_changed(&self) -> bool {
        let now = || Fingerprint::of(&client::kubeconfig(&self.args).ok()??, self.args.context.as_deref());
        self.was.is_some_and(|was| now().is_some_and(|now| now != was))
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::testing::server;

    /// A kubeconfig with two contexts, of which one names files.
    struct Files(tempfile::TempDir);

    impl Files {
        fn new() -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            for name in ["ca", "cert", "key"] {
                files.write(name, name);
            }
            files.configure("used", "https://one");
            files
        }

        fn path(&self) -> PathBuf {
            self.0.path().join("kubeconfig")
        }

        fn write(&self, name: &str, text: &str) {
            fs::write(self.0.path().join(name), text).unwrap();
        }

        fn configure(&self, current: &str, server: &str) {
            let text = format!(
                "{{apiVersion: v1, kind: Config, current-context: {current}, contexts: [{{name: used, context: {{cluster: a, user: a}}}}, \
                 {{name: other, context: {{cluster: b, user: b}}}}], clusters: [{{name: a, cluster: {{server: '{server}', \
                 certificate-authority: ca}}}}, {{name: b, cluster: {{server: 'https://b'}}}}], users: [{{name: a, user: \
                 {{client-certificate: cert, client-key: key}}}}, {{name: b, user: {{}}}}]}}"
            );
            self.write("kubeconfig", &text);
        }

        fn own(&self) -> OwnCredentials {
            OwnCredentials::new(&ConnectionArgs { kubeconfig: Some(self.path()), context: None })
        }
    }

    #[test]
    fn each_file_of_a_kubeconfig_counts_but_what_another_context_has_does_not() {
        let files = Files::new();
        let own = files.own();
        assert!(own.was.is_some() && !own.has_changed());
        files.configure("other", "https://one");
        assert!(!own.has_changed(), "kubectl config use-context");
        files.configure("used", "https://two");
        assert!(own.has_changed());
        for name in ["ca", "cert", "key"] {
            let own = files.own();
            fs::remove_file(files.0.path().join(name)).unwrap();
            assert!(!own.has_changed(), "{name} may come back");
            files.write(name, "renewed");
            assert!(own.has_changed(), "{name}");
        }
        let own = files.own();
        files.write("kubeconfig", "{apiVersion: v1, kind: Conf");
        assert!(!own.has_changed(), "it is being written");
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_credentials_is_noticed_within_a_minute() {
        let (files, (client, _)) = (Files::new(), server(|_| panic!("nothing should be sent")));
        let (clock, time) = Clock::fake(Timestamp::UNIX_EPOCH);
        let own = files.own();
        let stale = tokio::time::timeout(INTERVAL * 10, own.stale(&client, &clock)).await;
        assert!(stale.is_err(), "{stale:?}");
        files.write("cert", "renewed");
        let stale = tokio::time::timeout(INTERVAL * 2, own.stale(&client, &clock)).await;
        assert_eq!(stale, Ok(StaleCredentials::Changed));

        let until = Timestamp::from_second(120).unwrap();
        let (own, client) = (files.own(), client.with_valid_until(Some(until)));
        assert!(!runs_out(&client, clock.now()));
        time.advance(Duration::from_secs(60));
        let stale = tokio::time::timeout(INTERVAL * 2, own.stale(&client, &clock)).await;
        assert_eq!(stale, Ok(StaleCredentials::RunOut));
    }
}
