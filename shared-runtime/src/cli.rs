//! The flags that both operators have. Each is an environment variable too: `--write-strategy` is
//! `TANDEM_WRITE_STRATEGY`.
//!
//! Flags are parsed and checked here; they are applied elsewhere.
#![expect(clippy::doc_markdown, reason = "doc comments of flags are help texts, which show no backticks")]

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};

use crate::leader::{InvalidTiming, Timing};
use crate::write::WriteStrategy;

/// The flags of both operators.
#[derive(Args, Clone, Debug)]
pub struct CommonArgs {
    /// The cluster, and the part of it that counts.
    #[command(flatten)]
    pub client: ClientArgs,

    /// How status and replicas are written where others write the same object
    ///
    /// All four end in the same object; they differ in what a race costs. Watch the difference in
    /// conflict_retry_conflicts_total and conflict_retry_requests_total:
    ///
    ///   --write-strategy lazy      see conflicts fail whole reconciles
    ///   --write-strategy retry     see client-go's RetryOnConflict absorb them
    ///   --write-strategy guarded   see them vanish
    #[arg(
        long,
        env = "TANDEM_WRITE_STRATEGY",
        value_name = "STRATEGY",
        value_enum,
        default_value_t,
        verbatim_doc_comment,
        help_heading = "Writing"
    )]
    pub write_strategy: WriteStrategy,

    /// How many objects are reconciled at the same time
    #[arg(long, env = "TANDEM_CONCURRENCY", default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256), help_heading = "Writing")]
    pub concurrency: u16,

    /// Leader election.
    #[command(flatten)]
    pub leader: LeaderArgs,

    /// Where /livez, /readyz and /metrics are served; port 0 takes any free port and logs it
    ///
    /// The default is every address of the machine, also those of IPv4, and only these where there is no IPv6.
    #[arg(
        long,
        env = "TANDEM_ADMIN_ADDRESS",
        default_value = "[::]:8080",
        value_name = "ADDRESS:PORT",
        help_heading = "Telemetry"
    )]
    pub admin_address: SocketAddr,

    /// Logging and tracing.
    #[command(flatten)]
    pub telemetry: TelemetryArgs,
}

/// Connection to the cluster.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ConnectionArgs {
    /// The kubeconfig to use; without it, the Pod's service account, and outside a Pod $KUBECONFIG or ~/.kube/config
    ///
    /// Example: kind get kubeconfig > kind.yaml, then --kubeconfig kind.yaml
    ///
    /// As with kubectl, its proxy-url names a proxy (http:// or socks5://); without one, HTTPS_PROXY does, but for what
    /// NO_PROXY lists. A Pod's service account never goes through a proxy.
    #[arg(long, env = "TANDEM_KUBECONFIG", value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,

    /// The context of the kubeconfig to use; without it, its current one
    #[arg(long, env = "TANDEM_CONTEXT", value_name = "NAME")]
    pub context: Option<String>,
}

/// The cluster, and the part of it that counts.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Cluster")]
pub struct ClientArgs {
    /// Connection to the cluster.
    #[command(flatten)]
    pub connection: ConnectionArgs,

    /// Only look at Tandem's objects in this namespace, the same for both operators; empty means all
    #[arg(
        long,
        env = "TANDEM_WATCH_NAMESPACE",
        value_name = "NAMESPACE",
        default_value = "",
        hide_default_value = true
    )]
    pub watch_namespace: String,
}

/// Leader election among several replicas.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Leader election")]
pub struct LeaderArgs {
    /// Work only while holding a lease, so that several replicas can run; --leader-elect=false is for exactly one
    #[arg(
        long,
        env = "TANDEM_LEADER_ELECT",
        value_name = "BOOL",
        default_value_t = true,
        action = ArgAction::Set,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true"
    )]
    pub leader_elect: bool,

    /// The lease's name; without it, the operator's
    #[arg(long, env = "TANDEM_LEASE_NAME", value_name = "NAME")]
    pub lease_name: Option<String>,

    /// The lease's namespace; without it, $POD_NAMESPACE, else the namespace of the service account or the context
    #[arg(long, env = "TANDEM_LEASE_NAMESPACE", value_name = "NAMESPACE")]
    pub lease_namespace: Option<String>,

    /// How long others wait before they take a lease that its holder no longer renews
    #[arg(long, env = "TANDEM_LEASE_DURATION_SECONDS", value_name = "SECONDS", default_value_t = 15, value_parser = seconds())]
    pub lease_duration_seconds: u32,

    /// How long the holder continues without a renewal; must be shorter than the lease
    #[arg(long, env = "TANDEM_RENEW_DEADLINE_SECONDS", value_name = "SECONDS", default_value_t = 10, value_parser = seconds())]
    pub renew_deadline_seconds: u32,

    /// How often the holder renews and the others look
    #[arg(long, env = "TANDEM_RETRY_PERIOD_SECONDS", value_name = "SECONDS", default_value_t = 2, value_parser = seconds())]
    pub retry_period_seconds: u32,
}

fn seconds() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=3600)
}

impl LeaderArgs {
    /// The lease times, checked against each other.
    pub fn timing(&self) -> Result<Timing, InvalidTiming> {
        let seconds = |value: u32| Duration::from_secs(u64::from(value));
        Timing {
            lease_duration: seconds(self.lease_duration_seconds),
            renew_deadline: seconds(self.renew_deadline_seconds),
            retry_period: seconds(self.retry_period_seconds),
        }
        .validate()
    }
}

/// Logging and tracing.
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Telemetry")]
pub struct TelemetryArgs {
    /// How log lines look; without it, text on a terminal and json elsewhere
    #[arg(long, env = "TANDEM_LOG_FORMAT", value_enum, value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,

    /// What is logged: a level (off, error, warn, info, debug, trace), or a filter per module
    ///
    /// Examples: --log-level debug
    ///           --log-level info,shared_runtime::write=debug   (each write)
    ///           --log-level info,conflict_retry=debug          (each request of a write)
    ///
    /// Traces go to an OpenTelemetry collector when the standard variables say so, for instance
    /// OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318
    #[arg(
        long,
        env = "TANDEM_LOG_LEVEL",
        value_name = "FILTER",
        default_value = "info",
        verbatim_doc_comment
    )]
    pub log_level: String,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Human-readable text
    Text,
    /// JSON, one object per line
    Json,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser};

    use super::*;
    use crate::leader::DEFAULT_TIMING;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        common: CommonArgs,
    }

    fn parse(args: &[&str]) -> Result<CommonArgs, clap::Error> {
        Cli::try_parse_from([&["operator"], args].concat()).map(|cli| cli.common)
    }

    #[test]
    fn the_flags_are_well_formed_and_each_is_an_environment_variable() {
        let command = Cli::command();
        for arg in command.get_arguments().filter(|arg| arg.get_long().is_some_and(|long| long != "help")) {
            let expected = format!("TANDEM_{}", arg.get_long().unwrap().replace('-', "_").to_uppercase());
            assert_eq!(arg.get_env().and_then(|env| env.to_str()), Some(expected.as_str()));
            assert!(arg.get_help().is_some(), "{arg}");
        }
        Cli::command().debug_assert();
    }

    #[test]
    fn the_defaults_are_guarded_writes_and_client_gos_lease() {
        let args = parse(&[]).unwrap();
        assert_eq!(args.write_strategy, WriteStrategy::Guarded);
        assert!(args.leader.leader_elect);
        assert_eq!(args.leader.timing(), Ok(DEFAULT_TIMING));
    }

    #[test]
    fn leader_election_is_switched_off_with_an_equals_sign() {
        assert!(!parse(&["--leader-elect=false"]).unwrap().leader.leader_elect);
        assert!(parse(&["--leader-elect"]).unwrap().leader.leader_elect);
        assert!(parse(&["--leader-elect", "--context=x"]).unwrap().leader.leader_elect);
    }

    #[test]
    fn lease_times_are_checked_against_each_other() {
        let args = parse(&["--lease-duration-seconds=10"]).unwrap();
        assert!(args.leader.timing().is_err());
    }

    #[test]
    fn an_unknown_strategy_is_refused_with_the_known_ones() {
        let message = parse(&["--write-strategy=force"]).unwrap_err().to_string();
        assert!(message.contains("lazy, retry, patch, guarded"), "{message}");
    }
}
