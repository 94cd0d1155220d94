//! Measures what Tandem promises in numbers: conflicts on a real API server, the planner on generated clusters, both
//! operators on a large real one, a large drain, and both operators beside Karpenter.
//! `cargo xtask bench` runs it, in release mode.

mod client_go;
mod conflict;
mod counter;
mod cpu;
mod drain;
mod filling;
mod latency;
mod live;
mod load;
mod numbers;
mod page;
mod planner;
mod plot;
mod policy;
mod processor_cache;
mod row;
mod session;
mod summary;
mod tandem;
mod watched;
mod wire;

use clap::Parser;

/// Tandem's benchmarks
#[derive(Parser)]
#[command(name = "cargo xtask bench", bin_name = "cargo xtask bench")]
enum Bench {
    Conflict(conflict::Args),
    Drain(drain::Args),
    Latency(latency::Args),
    Live(live::Args),
    Planner(planner::Args),
}

fn main() -> anyhow::Result<()> {
    // This same binary, in another process, supervises the control plane; see `testbed::process_supervisor`.
    if testbed::process_supervisor::serve_if_asked()? {
        return Ok(());
    }
    match Bench::parse() {
        Bench::Conflict(args) => tokio::runtime::Runtime::new()?.block_on(conflict::run(args)),
        Bench::Drain(args) => tokio::runtime::Runtime::new()?.block_on(drain::run(args)),
        Bench::Latency(args) => tokio::runtime::Runtime::new()?.block_on(latency::run(args)),
        Bench::Live(args) => tokio::runtime::Runtime::new()?.block_on(live::run(args)),
        Bench::Planner(args) => planner::run(&args),
    }
}
