//! kubectl and Helm against a cluster, both from the pinned Go module.

use std::process::Stdio;

use anyhow::{Context as _, Result, bail};
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use toolbox::tools::Tool;

use super::Cluster;
use crate::control_plane::components::GOGC;

impl Cluster {
    /// Runs kubectl as the administrator and returns its output.
    ///
    /// # Errors
    /// When it fails; the message is its standard error.
    pub async fn kubectl(&self, args: &[&str]) -> Result<String> {
        self.run(Tool::Kubectl, args, "").await
    }

    /// Whether `account`, a service account of `namespace`, may do what `args` say (`kubectl auth can-i`), as the API server
    /// knows it: shortly after a right is taken away, it may not know yet.
    ///
    /// # Errors
    /// When kubectl cannot be started, or answers neither yes nor no.
    pub async fn can_i(&self, (namespace, account): (&str, &str), args: &[&str]) -> Result<bool> {
        let account = format!("--as=system:serviceaccount:{namespace}:{account}");
        let mut kubectl = self.command(Tool::Kubectl).await?;
        let answer = kubectl.args(["auth", "can-i"]).args(args).arg(account).output().await?;
        // "no" comes with an exit status that an error has as well, and with a reason: "no - RBAC: role … not found".
        let said = String::from_utf8_lossy(&answer.stdout);
        match said.split_whitespace().next() {
            Some("yes") => Ok(true),
            Some("no") => Ok(false),
            _ => bail!("kubectl says {said}{}", String::from_utf8_lossy(&answer.stderr)),
        }
    }

    /// Like [`Cluster::kubectl`], with `input` on standard input (`kubectl apply -f -`).
    ///
    /// # Errors
    /// Same as [`Cluster::kubectl`].
    pub async fn kubectl_with_input(&self, args: &[&str], input: &str) -> Result<String> {
        self.run(Tool::Kubectl, args, input).await
    }

    /// Runs Helm as the administrator and returns its output.
    ///
    /// # Errors
    /// When it fails; the message is its standard error.
    pub async fn helm(&self, args: &[&str]) -> Result<String> {
        self.run(Tool::Helm, args, "").await
    }

    /// A command for kubectl or Helm that uses this cluster and leaves nothing in the user's home directory.
    ///
    /// # Errors
    /// When the tool is missing and cannot be built.
    pub async fn command(&self, tool: Tool) -> Result<Command> {
        let found = self.toolbox.find(&[tool]).await?.pop().context("the toolbox is empty")?;
        let mut command = Command::new(found.path);
        command.args(found.first_args).env("KUBECONFIG", &self.kubeconfig).kill_on_drop(true);
        for (name, _) in std::env::vars_os() {
            // The user's own settings must not change the results of the tests.
            let theirs =
                name.to_str().is_some_and(|name| name.starts_with("HELM_") || name.starts_with("XDG_"));
            if theirs {
                command.env_remove(name);
            }
        }
        command.env("HOME", self.root().join("home"));
        if std::env::var_os("GOGC").is_none() {
            command.env("GOGC", GOGC);
        }
        Ok(command)
    }

    async fn run(&self, tool: Tool, args: &[&str], input: &str) -> Result<String> {
        let mut child = self
            .command(tool)
            .await?
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", tool.name()))?;
        let mut stdin = child.stdin.take().context("no standard input")?;
        let feed = async {
            // A tool that does not read its input closes it early; its exit code is what counts.
            stdin.write_all(input.as_bytes()).await.ok();
            drop(stdin);
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            bail!("{} {} failed: {}", tool.name(), args.join(" "), said.trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
