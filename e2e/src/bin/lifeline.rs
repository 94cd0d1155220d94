//! The lifeline as a binary of its own, which Cargo builds beside the end-to-end tests. All of it is in the library.

fn main() -> anyhow::Result<()> {
    if !e2e::lifeline::serve_if_asked()? {
        anyhow::bail!("this program is started by the end-to-end harness, not by hand");
    }
    Ok(())
}
