//! kubectl's own conflict: a file that was exported, edited and sent back, while another writer wrote.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};
use tempfile::TempDir;
use testbed::wait::eventually;
use toolbox::tools::Tool;

use crate::context::{Actor, PATIENCE, ScenarioContext};
use crate::pool::{Pool, pool};
use crate::scenario::{Needs, Scenario};

pub(super) const SCENARIO: Scenario = Scenario {
    name: "exported-file",
    title: "kubectl replace, apply and edit of an exported file: the object has been modified",
    rows: &[],
    refutes: &["force-the-apply"],
    lesson: "An exported file contains its old resourceVersion: after any other write, replace and apply of the file are refused, however often you try.\nKeep a file with only your own fields, and apply it server-side; to set one value, use kubectl patch or kubectl scale.",
    needs: Needs::ApiServer,
    run: |ctx| Box::pin(run(ctx)),
};

/// The end of the message of a 409 over a version.
const MODIFIED: &str =
    "the object has been modified; please apply your changes to the latest version and try again";

/// A file that has what Alice decides, and nothing else.
const MINE: &str =
    "apiVersion: lab.tandem.dev/v1\nkind: Pool\nmetadata:\n  name: mine\nspec:\n  machine: small\n";

/// An editor that waits with its change until the file `saved` appears, a minute at most.
const EDITOR: &str = r#"touch opened
n=0
while [ ! -e saved ] && [ "$n" -lt 1200 ]; do sleep 0.05; n=$((n + 1)); done
sed "s/$FROM/$TO/" "$1" > edited
cat edited > "$1"
rm -f opened saved
"#;

async fn run(ctx: &ScenarioContext) -> Result<()> {
    let bob = ctx.actor("bob").await?;
    let shell = Shell { ctx, directory: tempfile::tempdir()? };
    shell.write("editor.sh", EDITOR)?;
    replaced(&shell, &bob).await?;
    applied(&shell, &bob).await?;
    forced(&shell, &bob).await?;
    edited(&shell, &bob).await?;
    own_fields(&shell, &bob).await
}

async fn replaced(shell: &Shell<'_>, bob: &Actor) -> Result<()> {
    let ctx = shell.ctx;
    ctx.say("Alice exports a pool to a file, changes the machine type in the file, and sends it back with kubectl replace. Meanwhile Bob sets 5 replicas.");
    exported_and_outdated(shell, bob, "replaced").await?;
    let refused = shell.kubectl("replace -f replaced.yaml").await?;
    ctx.quote(refused.last());
    ctx.check(
        "kubectl replace is refused: the file carries the version of its export",
        !refused.is_done && refused.last().ends_with(MODIFIED),
    );
    let stored = spec_of(ctx, "replaced").await?;
    ctx.check_eq("nothing of it was written", &stored, &of(5, "small"));

    ctx.say("Common advice: delete the line with the resourceVersion from the file. kubectl replace then reads the newest version, and sends the file with that.");
    shell.without_version("replaced.yaml")?;
    shell.kubectl("replace -f replaced.yaml").await?.done()?;
    let stored = spec_of(ctx, "replaced").await?;
    ctx.check_eq("granted; and Bob's 5 is the file's 3 again, without an error", &stored, &of(3, "large"));
    Ok(())
}

async fn applied(shell: &Shell<'_>, bob: &Actor) -> Result<()> {
    let ctx = shell.ctx;
    ctx.say("The same with kubectl apply, which sends a patch of what differs between the file and the object. The version differs too, so it is in the patch. With -v=6 kubectl logs its requests.");
    let version = exported_and_outdated(shell, bob, "applied").await?;
    let refused = shell.kubectl("apply -f applied.yaml -v=6").await?;
    ctx.quote(refused.last());
    ctx.check("kubectl apply is refused", !refused.is_done && refused.last().ends_with(MODIFIED));
    ctx.check(
        "its patch names the version of the export",
        refused.errors.contains(&format!("\"resourceVersion\":\"{version}\"")),
    );
    let conflicts = refused
        .errors
        .lines()
        .filter(|line| line.contains("verb=\"PATCH\"") && line.contains("status=\"409 Conflict\""));
    ctx.check_eq("kubectl has tried six times by itself, and met six 409s", &conflicts.count(), &6);

    ctx.say("So a loop around it in a shell does not help: kubectl reads the object again each time, but the version is in the file.");
    let refused = shell.kubectl("apply -f applied.yaml").await?;
    ctx.check("tried again: refused again", !refused.is_done && refused.last().ends_with(MODIFIED));
    ctx.check_eq("nothing of it was written", &spec_of(ctx, "applied").await?, &of(5, "small"));

    ctx.say("She exports again, changes the new file, and applies it before anyone writes.");
    shell.export("applied").await?;
    shell.change("applied.yaml", "small", "large")?;
    shell.kubectl("apply -f applied.yaml").await?.done()?;
    ctx.check_eq("this time it is granted", &spec_of(ctx, "applied").await?, &of(5, "large"));
    ctx.say("And now the very same file once more. Nobody else has written.");
    let refused = shell.kubectl("apply -f applied.yaml").await?;
    ctx.check(
        "refused: her own first apply has moved the version, so such a file can be applied once",
        !refused.is_done && refused.last().ends_with(MODIFIED),
    );
    Ok(())
}

async fn forced(shell: &Shell<'_>, bob: &Actor) -> Result<()> {
    let ctx = shell.ctx;
    ctx.say("Other advice: force. There are two flags with that word. Alice exports a file again, and Bob sets 5 after that.");
    exported_and_outdated(shell, bob, "forced").await?;
    let uid = ctx.stored::<Pool>("forced").await?.uid();
    let refused = shell.kubectl("apply --force-conflicts -f forced.yaml").await?;
    ctx.quote(refused.last());
    ctx.check(
        "--force-conflicts alone is no option of the ordinary apply",
        !refused.is_done && refused.last().contains("--force-conflicts only works with --server-side"),
    );
    let refused = shell.kubectl("apply --server-side --force-conflicts -f forced.yaml").await?;
    ctx.quote(&refused.errors);
    ctx.check(
        "with --server-side it takes fields from other managers, and still the version is refused",
        !refused.is_done && refused.errors.contains(MODIFIED),
    );
    ctx.check_eq("nothing of it was written", &spec_of(ctx, "forced").await?, &of(5, "small"));
    ctx.say("What kubectl says of other managers does not apply here: this 409 is about the version in the file. Now --force:");
    let done = shell.kubectl("apply --force -f forced.yaml").await?.done()?;
    ctx.quote(&done);
    let now = ctx.stored::<Pool>("forced").await?;
    ctx.check(
        "the pool has another UID: kubectl has deleted it and created another one from the file",
        uid.is_some() && now.uid() != uid,
    );
    let stored = spec_of(ctx, "forced").await?;
    ctx.check_eq("and Bob's 5 is gone with the old one", &stored, &of(3, "large"));
    Ok(())
}

async fn edited(shell: &Shell<'_>, bob: &Actor) -> Result<()> {
    let ctx = shell.ctx;
    ctx.say("kubectl edit sends only what she has changed in the editor, and no version. Bob writes while her editor is open.");
    ctx.set(&pool("edited", 3)).await?;
    shell.edit("edited", ("small", "large"), bob, &json!({"spec": {"replicas": 5}})).await?;
    let stored = spec_of(ctx, "edited").await?;
    ctx.check_eq("her change and Bob's are both there: no conflict", &stored, &of(5, "large"));
    ctx.say("The drawback: Bob changes the same line while her editor is open.");
    let between =
        shell.edit("edited", ("large", "huge"), bob, &json!({"spec": {"machine": "medium"}})).await?;
    let stored = spec_of(ctx, "edited").await?;
    ctx.check_eq("Bob's medium was stored", &between.spec.machine.as_deref(), &Some("medium"));
    ctx.check_eq("and hers is written over it, without an error", &stored, &of(5, "huge"));
    Ok(())
}

async fn own_fields(shell: &Shell<'_>, bob: &Actor) -> Result<()> {
    let ctx = shell.ctx;
    ctx.say("The cure: a file with only the fields that she decides.");
    shell.write("mine.yaml", MINE)?;
    ctx.quote(MINE);
    shell.kubectl("apply --server-side -f mine.yaml").await?.done()?;
    merge(bob, "mine", &json!({"spec": {"replicas": 5}})).await?;
    shell.change("mine.yaml", "small", "large")?;
    shell.kubectl("apply --server-side -f mine.yaml").await?.done()?;
    let stored = spec_of(ctx, "mine").await?;
    ctx.check_eq("granted, without force, and Bob's 5 stands", &stored, &of(5, "large"));
    shell.kubectl("apply --server-side -f mine.yaml").await?.done()?;
    ctx.say(
        "It can be applied as often as she likes. For one value no file is needed. Bob writes before each:",
    );
    merge(bob, "mine", &json!({"spec": {"replicas": 6}})).await?;
    let note = r#"patch pools.lab.tandem.dev/mine --type=merge --patch='{"spec":{"note":"night"}}'"#;
    shell.kubectl(note).await?.done()?;
    merge(bob, "mine", &json!({"spec": {"machine": "huge"}})).await?;
    shell.kubectl("scale pools.lab.tandem.dev/mine --replicas=7").await?.done()?;
    let pool = ctx.stored::<Pool>("mine").await?;
    ctx.check_eq(
        "kubectl patch and kubectl scale are granted, and everything that Bob set beside them stands",
        &(pool.spec.note.as_deref(), pool.spec.replicas, pool.spec.machine.as_deref()),
        &(Some("night"), Some(7), Some("huge")),
    );
    ctx.say("And where a decision depends on what she saw, kubectl scale can say so:");
    merge(bob, "mine", &json!({"spec": {"replicas": 9}})).await?;
    let guarded = "scale pools.lab.tandem.dev/mine --current-replicas=7 --replicas=8";
    let refused = shell.kubectl(guarded).await?;
    ctx.quote(refused.last());
    let replicas = ctx.stored::<Pool>("mine").await?.spec.replicas;
    ctx.check("it is refused, because Bob was first", !refused.is_done);
    ctx.check_eq("and Bob's 9 stands", &replicas, &Some(9));
    Ok(())
}

/// A pool is created, exported and changed in the file, and then Bob writes. Returns the version in the file.
async fn exported_and_outdated(shell: &Shell<'_>, bob: &Actor, name: &str) -> Result<String> {
    let created = shell.ctx.set(&pool(name, 3)).await?;
    shell.export(name).await?;
    shell.change(&format!("{name}.yaml"), "small", "large")?;
    merge(bob, name, &json!({"spec": {"replicas": 5}})).await?;
    created.resource_version().context("no version")
}

/// Bob's way of writing: a field of his own, at any version.
#[expect(clippy::disallowed_methods, reason = "any other write will do")]
async fn merge(bob: &Actor, name: &str, body: &Value) -> Result<Pool> {
    Ok(bob.api::<Pool>().patch(name, &PatchParams::default(), &Patch::Merge(body)).await?)
}

/// Replicas and machine type, as they are stored.
async fn spec_of(ctx: &ScenarioContext, name: &str) -> Result<(Option<i32>, Option<String>)> {
    let spec = ctx.stored::<Pool>(name).await?.spec;
    Ok((spec.replicas, spec.machine))
}

fn of(replicas: i32, machine: &str) -> (Option<i32>, Option<String>) {
    (Some(replicas), Some(machine.to_owned()))
}

/// Alice's shell, in a directory of its own.
struct Shell<'a> {
    ctx: &'a ScenarioContext,
    directory: TempDir,
}

/// The end of a run of kubectl.
struct Ended {
    is_done: bool,
    output: String,
    errors: String,
}

impl Ended {
    /// The last line of the errors.
    fn last(&self) -> &str {
        self.errors.lines().last().unwrap_or_default()
    }

    /// The output of a run that succeeded.
    fn done(self) -> Result<String> {
        ensure!(self.is_done, "kubectl failed: {}", self.errors.trim());
        Ok(self.output)
    }
}

impl Shell<'_> {
    /// Runs kubectl as it is typed; arguments have no spaces.
    async fn kubectl(&self, typed: &str) -> Result<Ended> {
        self.ctx.act("alice", &format!("kubectl {typed}"));
        let plain = typed.replace('\'', "");
        self.run(&plain.split(' ').collect::<Vec<_>>(), &[]).await
    }

    async fn run(&self, args: &[&str], variables: &[(&str, &str)]) -> Result<Ended> {
        let mut kubectl = self.ctx.cluster.command(Tool::Kubectl).await?;
        kubectl.args(["--namespace", self.ctx.namespace()]).args(args);
        kubectl.envs(variables.iter().copied()).env("TMPDIR", self.directory.path());
        kubectl.current_dir(self.directory.path()).stdin(Stdio::null());
        let ended = kubectl.output().await.context("cannot run kubectl")?;
        Ok(Ended {
            is_done: ended.status.success(),
            output: String::from_utf8_lossy(&ended.stdout).into_owned(),
            errors: String::from_utf8_lossy(&ended.stderr).into_owned(),
        })
    }

    /// Exports the pool `name` to a file of its name.
    async fn export(&self, name: &str) -> Result<()> {
        let object = format!("pools.lab.tandem.dev/{name}");
        self.ctx.act("alice", &format!("kubectl get {object} -o yaml > {name}.yaml"));
        let exported = self.run(&["get", &object, "-o", "yaml"], &[]).await?.done()?;
        self.write(&format!("{name}.yaml"), &exported)
    }

    /// Changes the machine type in a file.
    fn change(&self, file: &str, from: &str, to: &str) -> Result<()> {
        self.ctx.act("alice", &format!("sed -i 's/machine: {from}/machine: {to}/' {file}"));
        let (from, to) = (format!("machine: {from}"), format!("machine: {to}"));
        let before = std::fs::read_to_string(self.directory.path().join(file))?;
        ensure!(before.contains(&from), "{file} has no {from}");
        self.write(file, &before.replace(&from, &to))
    }

    /// Deletes the version from a file.
    fn without_version(&self, file: &str) -> Result<()> {
        self.ctx.act("alice", &format!("sed -i '/resourceVersion:/d' {file}"));
        let before = std::fs::read_to_string(self.directory.path().join(file))?;
        let kept: Vec<&str> = before.lines().filter(|line| !line.contains("resourceVersion:")).collect();
        ensure!(kept.len() < before.lines().count(), "{file} has no version");
        self.write(file, &format!("{}\n", kept.join("\n")))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        std::fs::write(self.directory.path().join(file), text).with_context(|| format!("cannot write {file}"))
    }

    /// Changes the machine type by kubectl edit. Bob writes `body` while the editor is open; returns what he wrote.
    async fn edit(&self, name: &str, machine: (&str, &str), bob: &Actor, body: &Value) -> Result<Pool> {
        let object = format!("pools.lab.tandem.dev/{name}");
        self.ctx.act("alice", &format!("kubectl edit {object}"));
        let (from, to) = (format!("machine: {}", machine.0), format!("machine: {}", machine.1));
        let (opened, saved) = (self.directory.path().join("opened"), self.directory.path().join("saved"));
        let editing = async {
            let variables = [("KUBE_EDITOR", "sh editor.sh"), ("FROM", from.as_str()), ("TO", to.as_str())];
            self.run(&["edit", &object], &variables).await?.done()
        };
        let meanwhile = async {
            eventually(PATIENCE, "the editor is open", || async { Ok(opened.exists().then_some(())) })
                .await?;
            let written = merge(bob, name, body).await?;
            self.ctx.act("alice", &format!("changes “{from}” to “{to}” in the editor, saves and leaves"));
            std::fs::write(&saved, "")?;
            anyhow::Ok(written)
        };
        let (_, written) = tokio::try_join!(editing, meanwhile)?;
        Ok(written)
    }
}
