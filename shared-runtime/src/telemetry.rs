//! Logs as text or JSON, and traces to an OpenTelemetry collector when the standard environment variables configure
//! one.
//!
//! The code that logs decides what is worth a log line or a span.

use std::env;
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::{Request, Response};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::hyper::HyperClient;
use opentelemetry_http::{Bytes, HttpClient, HttpError};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::SdkTracerProvider;
use tokio::runtime::Handle;
use tracing::{info, warn};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, Registry};

use crate::cli::{LogFormat, TelemetryArgs};

/// Modules that a plain level does not enable: libraries whose messages ours repeat with advice, or that log each
/// request.
const QUIET: &str = "kube_runtime=error,kube_client=warn,kube_client::client::builder=off,hyper=warn,hyper_util=warn,h2=warn,tower=warn,rustls=warn,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn";

/// The standard's default for `OTEL_EXPORTER_OTLP_TIMEOUT`.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// The standard's collector address when the environment names the exporter and no endpoint.
const DEFAULT_ENDPOINT: &str = "http://localhost:4318";

/// Logging or tracing cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error(
        "--log-level {filter:?} is no level and no filter; try info, or info,shared_runtime::write=debug"
    )]
    Filter {
        /// The given filter.
        filter: String,
        /// The parser's error.
        source: tracing_subscriber::filter::ParseError,
    },
    /// A word in the place of a level. The library would treat it as the name of a module, and log nothing else.
    #[error(
        "--log-level {filter:?}: {word:?} is no level; levels are off, error, warn, info, debug and trace, and a module has its own behind an equals sign, as in info,shared_runtime::write=debug"
    )]
    Level {
        /// The given filter.
        filter: String,
        /// The part of it that is not a level.
        word: String,
    },
    /// Another subscriber is already installed.
    #[error("logging is set up already")]
    Installed(#[from] tracing_subscriber::util::TryInitError),
    /// The exporter cannot be created from the environment.
    #[error("traces cannot be exported; check the OTEL_EXPORTER_OTLP_* environment variables")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The endpoint uses TLS, and there are no CA certificates to trust.
    #[error(
        "traces cannot be exported to {endpoint}: https needs the system's CA certificates; install them (ca-certificates), point SSL_CERT_FILE at a bundle, or use an http:// endpoint"
    )]
    Certificates {
        /// The endpoint.
        endpoint: String,
        /// The error of reading the certificates.
        source: std::io::Error,
    },
}

/// The exporter, which has to be flushed at the end.
#[derive(Debug)]
#[must_use = "spans that are not flushed are lost"]
pub struct Telemetry {
    tracing: Option<SdkTracerProvider>,
}

/// Installs the process's logging and tracing. Must run inside tokio: the exporter sends on its runtime.
pub fn init(
    args: &TelemetryArgs,
    name: &'static str,
    version: &'static str,
) -> Result<Telemetry, TelemetryError> {
    let filter = filter(&args.log_level)?;
    let format = args
        .log_format
        .unwrap_or_else(|| if std::io::stderr().is_terminal() { LogFormat::Text } else { LogFormat::Json });
    let logs = tracing_subscriber::fmt::layer().with_writer(std::io::stderr);
    let logs = match format {
        LogFormat::Text => logs.with_ansi(std::io::stderr().is_terminal()).boxed(),
        LogFormat::Json => {
            logs.json().flatten_event(true).with_current_span(true).with_span_list(false).boxed()
        }
    };
    let wanted = Wanted::from_environment(|name| env::var(name).ok());
    let provider = match &wanted {
        Wanted::Off | Wanted::Unsupported(_) => None,
        Wanted::Otlp(endpoint) => Some(provider(name, version, endpoint)?),
    };
    let spans =
        provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(name)));
    Registry::default().with(filter).with(spans).with(logs).try_init()?;
    match wanted {
        Wanted::Otlp(endpoint) => info!(endpoint, "traces are exported"),
        Wanted::Unsupported(what) => warn!(what, "traces are not exported: this is not supported"),
        Wanted::Off => {}
    }
    Ok(Telemetry { tracing: provider })
}

impl Telemetry {
    /// Sends the remaining spans, within the exporter's timeout.
    pub async fn flush(self) {
        let Some(provider) = self.tracing else { return };
        // It blocks its thread until the exporter, which runs on this runtime, is done.
        match tokio::task::spawn_blocking(move || provider.shutdown()).await {
            Ok(Ok(())) => {}
            Ok(Err(failed)) => warn!(error = %failed, "could not send the last traces"),
            Err(failed) => warn!(error = %failed, "could not send the last traces"),
        }
    }
}

fn filter(text: &str) -> Result<EnvFilter, TelemetryError> {
    if let Some(word) = no_level(text) {
        return Err(TelemetryError::Level { filter: text.to_owned(), word: word.to_owned() });
    }
    // The library does not accept a space after a comma.
    let trimmed: Vec<&str> = text.split(',').map(str::trim).collect();
    let trimmed = trimmed.join(",");
    // A filter that names modules is complete; a bare level is meant for our own code.
    let full = if trimmed.contains('=') { trimmed } else { format!("{trimmed},{QUIET}") };
    EnvFilter::try_new(full).map_err(|source| TelemetryError::Filter { filter: text.to_owned(), source })
}

/// The first part of a filter that has a word in the place of a level. A module may have any name: it may not exist
/// yet.
fn no_level(text: &str) -> Option<&str> {
    let parts = || text.split(',').map(str::trim).filter(|part| !part.is_empty());
    if parts().next().is_none() {
        return Some(text);
    }
    // Directives about spans contain commas and equals signs of their own; the library parses those.
    parts().filter(|_| !text.contains('[')).find_map(|part| {
        let level = part.rsplit_once('=').map_or(part, |(_, level)| level);
        level.parse::<LevelFilter>().is_err().then_some(level)
    })
}

/// The exporter that the environment requests.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Off,
    /// To this endpoint.
    Otlp(String),
    /// The variable and its value.
    Unsupported(String),
}

impl Wanted {
    /// The rules of the OpenTelemetry specification, except one: its default is to export to localhost, ours is not to
    /// export unless an endpoint or the exporter is named.
    fn from_environment(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Self::Off;
        }
        let endpoint =
            get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT").or_else(|| get("OTEL_EXPORTER_OTLP_ENDPOINT"));
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Self::Off,
            None if endpoint.is_none() => return Self::Off,
            Some("otlp") | None => {}
            Some(other) => return Self::Unsupported(format!("OTEL_TRACES_EXPORTER={other}")),
        }
        let name = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        match name.iter().find_map(|name| Some((name, get(name)?))) {
            Some((name, protocol)) if protocol != "http/protobuf" => {
                Self::Unsupported(format!("{name}={protocol}"))
            }
            _ => Self::Otlp(endpoint.unwrap_or_else(|| DEFAULT_ENDPOINT.to_owned())),
        }
    }
}

fn provider(
    name: &'static str,
    version: &'static str,
    endpoint: &str,
) -> Result<SdkTracerProvider, TelemetryError> {
    let client = OnRuntime { client: client(endpoint)?, runtime: Handle::current() };
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build()?;
    let mut resource =
        Resource::builder().with_attribute(opentelemetry::KeyValue::new("service.version", version));
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(name);
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build())
}

/// An HTTP client for `endpoint`. Without TLS no certificate is verified, and an image needs none.
fn client(endpoint: &str) -> Result<Arc<dyn HttpClient>, TelemetryError> {
    let is_tls = endpoint.get(.."https:".len()).is_some_and(|scheme| scheme.eq_ignore_ascii_case("https:"));
    if !is_tls {
        return Ok(Arc::new(HyperClient::new(HttpConnector::new(), EXPORT_TIMEOUT, None)));
    }
    let roots = HttpsConnectorBuilder::new()
        .with_native_roots()
        .map_err(|source| TelemetryError::Certificates { endpoint: endpoint.to_owned(), source })?;
    let connector = roots.https_or_http().enable_http1().build();
    Ok(Arc::new(HyperClient::new(connector, EXPORT_TIMEOUT, None)))
}

/// The exporter's HTTP client. The exporter calls it from a thread of its own, without a runtime; the request runs on
/// ours.
#[derive(Clone, Debug)]
struct OnRuntime {
    client: Arc<dyn HttpClient>,
    runtime: Handle,
}

#[async_trait]
impl HttpClient for OnRuntime {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let client = self.client.clone();
        self.runtime.spawn(async move { client.send_bytes(request).await }).await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(variables: &[(&str, &str)]) -> Wanted {
        Wanted::from_environment(|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn traces_are_exported_only_when_the_environment_asks() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318");
        assert_eq!(wanted(&[]), Wanted::Off);
        assert_eq!(wanted(&[endpoint]), Wanted::Otlp(endpoint.1.to_owned()));
        let named = ("OTEL_TRACES_EXPORTER", "otlp");
        assert_eq!(wanted(&[named]), Wanted::Otlp(DEFAULT_ENDPOINT.to_owned()));
        let for_traces = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "https://traces.example.org");
        assert_eq!(wanted(&[endpoint, for_traces]), Wanted::Otlp(for_traces.1.to_owned()));
        assert_eq!(wanted(&[endpoint, ("OTEL_TRACES_EXPORTER", "none")]), Wanted::Off);
        assert_eq!(wanted(&[endpoint, ("OTEL_SDK_DISABLED", "true")]), Wanted::Off);
        assert_eq!(wanted(&[("OTEL_EXPORTER_OTLP_ENDPOINT", "")]), Wanted::Off);
    }

    #[test]
    fn what_is_not_supported_is_said_and_not_taken_for_something_else() {
        let endpoint = ("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4317");
        let grpc = wanted(&[endpoint, ("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")]);
        assert_eq!(grpc, Wanted::Unsupported("OTEL_EXPORTER_OTLP_PROTOCOL=grpc".to_owned()));
        let zipkin = wanted(&[endpoint, ("OTEL_TRACES_EXPORTER", "zipkin")]);
        assert_eq!(zipkin, Wanted::Unsupported("OTEL_TRACES_EXPORTER=zipkin".to_owned()));
    }

    #[test]
    fn a_filter_that_does_not_parse_is_answered_with_examples() {
        assert!(filter("info").is_ok());
        assert!(filter("debug,shared_runtime::write=trace").is_ok());
        assert!(filter("INFO, kube=debug,").is_ok());
        assert!(filter("3,no_such_module=trace").is_ok());
        assert!(filter("kube=debug").is_ok());
        assert!(filter("info,[reconcile]=debug").is_ok());
        let failed = filter("info,/x=debug").unwrap_err().to_string();
        assert!(failed.contains("--log-level"), "{failed}");
    }

    #[test]
    fn a_word_that_is_no_level_is_refused_with_the_levels_there_are_and_an_example() {
        for (text, word) in [
            ("verbose", "verbose"),
            ("info,verbose", "verbose"),
            ("infoo,kube=debug", "infoo"),
            ("info,kube=loud", "loud"),
            ("shared_runtime", "shared_runtime"),
            ("a=b=c", "c"),
            ("", ""),
            (" ,", " ,"),
        ] {
            let failed = filter(text).unwrap_err().to_string();
            assert!(failed.starts_with(&format!("--log-level {text:?}: {word:?} is no level")), "{failed}");
            for help in ["off, error, warn, info, debug and trace", "info,shared_runtime::write=debug"] {
                assert!(failed.contains(help), "{failed}");
            }
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn spans_reach_a_collector_and_the_last_ones_are_flushed() {
        use opentelemetry::trace::Tracer as _;
        use opentelemetry_otlp::WithExportConfig as _;
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let endpoint = format!("http://{}/v1/traces", listener.local_addr().unwrap());
        let collector = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut read = vec![0; 4096];
            let count = stream.read(&mut read).await.unwrap();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await.unwrap();
            String::from_utf8_lossy(&read[..count]).into_owned()
        });
        let client = OnRuntime { client: client(&endpoint).unwrap(), runtime: Handle::current() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(endpoint)
            .build()
            .unwrap();
        let provider = SdkTracerProvider::builder().with_batch_exporter(exporter).build();
        provider.tracer("test").in_span("a span of the test", |_| {});
        Telemetry { tracing: Some(provider) }.flush().await;
        let request = collector.await.unwrap();
        assert!(request.starts_with("POST /v1/traces"), "{request}");
        assert!(request.contains("application/x-protobuf"), "{request}");
    }
}
