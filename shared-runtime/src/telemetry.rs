//! Logs for people or machines, and traces to an OpenTelemetry collector when the standard environment variables ask for
//! them.
//!
//! What is worth a log line or a span is decided where it happens.

use std::{env, io::IsTerminal as _, sync::Arc, time::Duration};

use async_trait::async_trait;
use http::{Request, Response};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, hyper::HyperClient};
use opentelemetry_otlp::{SpanExporter, WithHttpConfig as _};
use opentelemetry_sdk::{Resource, trace::SdkTracerProvider};
use tokio::runtime::Handle;
use tracing::{info, warn};
use tracing_subscriber::{
    EnvFilter, Layer as _, Registry, layer::SubscriberExt as _, util::SubscriberInitExt as _,
};

use crate::cli::{LogFormat, TelemetryArgs};

/// What a plain level does not raise: libraries whose own reports ours repeat with advice, or that report each request.
const QUIET: &str = "kube_runtime=error,kube_client=warn,kube_client::client::builder=off,hyper=warn,hyper_util=warn,h2=warn,tower=warn,rustls=warn,opentelemetry=warn,opentelemetry_sdk=warn,opentelemetry_otlp=warn";

/// The standard's default for `OTEL_EXPORTER_OTLP_TIMEOUT`.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// Logging or tracing cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The filter does not parse.
    #[error(
        "--log-level {filter:?} is no level and no filter; try info, or info,shared_runtime::write=debug"
    )]
    Filter {
        /// What was given.
        filter: String,
        /// Why.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Another subscriber is installed already.
    #[error("logging is set up already")]
    Installed(#[from] tracing_subscriber::util::TryInitError),
    /// The exporter cannot be made from what the environment says.
    #[error("traces cannot be exported; check the OTEL_EXPORTER_OTLP_* environment variables")]
    Exporter(#[from] opentelemetry_otlp::ExporterBuildError),
    /// The system's certificates cannot be read.
    #[error("cannot read the system's certificates for the trace exporter")]
    Certificates(#[from] std::io::Error),
}

/// What has to be flushed at the end.
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
    let provider = match wanted {
        Wanted::Off | Wanted::Unsupported(_) => None,
        Wanted::Otlp => Some(provider(name, version)?),
    };
    let spans =
        provider.as_ref().map(|provider| tracing_opentelemetry::layer().with_tracer(provider.tracer(name)));
    Registry::default().with(filter).with(spans).with(logs).try_init()?;
    match wanted {
        Wanted::Otlp => info!("traces are exported"),
        Wanted::Unsupported(what) => warn!(what, "traces are not exported: this is not supported"),
        Wanted::Off => {}
    }
    Ok(Telemetry { tracing: provider })
}

impl Telemetry {
    /// Sends what is left, within the exporter's timeout.
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
    // A filter that names modules says all there is to say; a bare level is meant for our own code.
    let full = if text.contains('=') { text.to_owned() } else { format!("{text},{QUIET}") };
    EnvFilter::try_new(full).map_err(|source| TelemetryError::Filter { filter: text.to_owned(), source })
}

/// What the environment asks for.
#[derive(Debug, PartialEq, Eq)]
enum Wanted {
    Off,
    Otlp,
    /// The variable and its value.
    Unsupported(String),
}

impl Wanted {
    /// The rules of the OpenTelemetry specification, but one: its default is to export to localhost, ours not to export
    /// unless an endpoint or the exporter is named.
    fn from_environment(get: impl Fn(&str) -> Option<String>) -> Self {
        let get = |name: &str| get(name).filter(|value| !value.is_empty());
        if get("OTEL_SDK_DISABLED").is_some_and(|value| value.eq_ignore_ascii_case("true")) {
            return Self::Off;
        }
        let endpoint = get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
            .or_else(|| get("OTEL_EXPORTER_OTLP_ENDPOINT"))
            .is_some();
        match get("OTEL_TRACES_EXPORTER").as_deref() {
            Some("none") => return Self::Off,
            None if !endpoint => return Self::Off,
            Some("otlp") | None => {}
            Some(other) => return Self::Unsupported(format!("OTEL_TRACES_EXPORTER={other}")),
        }
        let name = ["OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"];
        match name.iter().find_map(|name| Some((name, get(name)?))) {
            Some((name, protocol)) if protocol != "http/protobuf" => {
                Self::Unsupported(format!("{name}={protocol}"))
            }
            _ => Self::Otlp,
        }
    }
}

fn provider(name: &'static str, version: &'static str) -> Result<SdkTracerProvider, TelemetryError> {
    let connector = HttpsConnectorBuilder::new().with_native_roots()?.https_or_http().enable_http1().build();
    let client = OnRuntime {
        client: Arc::new(HyperClient::new(connector, EXPORT_TIMEOUT, None)),
        runtime: Handle::current(),
    };
    let exporter = SpanExporter::builder().with_http().with_http_client(client).build()?;
    let mut resource =
        Resource::builder().with_attribute(opentelemetry::KeyValue::new("service.version", version));
    if env::var_os("OTEL_SERVICE_NAME").is_none() {
        resource = resource.with_service_name(name);
    }
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource.build()).build())
}

/// The exporter's HTTP client. The exporter calls from a thread of its own, without a runtime; the request runs on ours.
#[derive(Clone, Debug)]
struct OnRuntime {
    client: Arc<HyperClient<HttpsConnector<HttpConnector>>>,
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
        assert_eq!(wanted(&[endpoint]), Wanted::Otlp);
        assert_eq!(wanted(&[("OTEL_TRACES_EXPORTER", "otlp")]), Wanted::Otlp);
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
        let failed = filter("a=b=c").unwrap_err().to_string();
        assert!(failed.contains("--log-level"), "{failed}");
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
        let connector =
            HttpsConnectorBuilder::new().with_native_roots().unwrap().https_or_http().enable_http1().build();
        let client = OnRuntime {
            client: Arc::new(HyperClient::new(connector, EXPORT_TIMEOUT, None)),
            runtime: Handle::current(),
        };
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
