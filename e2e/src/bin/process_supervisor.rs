//! The supervisor as a separate binary, which Cargo builds with the end-to-end tests. Its code is in `testbed`.

fn main() -> anyhow::Result<()> {
    if !testbed::process_supervisor::serve_if_asked()? {
        anyhow::bail!("this program is started by the end-to-end harness, not by hand");
    }
    Ok(())
}
