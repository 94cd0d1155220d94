//! The hands of the contract for `exec`: the program of the documentation, behind a script that is in trouble when it is told so.

use std::fs;

use shared_crds::v1alpha1::ExecProvider;

use super::tests::script;
use super::*;
use crate::hands::{GHOST, Hands, STRANGER, Trouble};
use crate::provisioner::Provisioner;
use crate::testing::{cluster, prefix};

/// The script. It runs the file `trouble`, which may answer instead of the program.
const SCRIPT: &str = r#"
request=$(cat)
field() { printf '%s\n' "$request" | sed -n "s/^  \"$1\": \"\(.*\)\",*\$/\1/p"; }
answer() { printf '%s\n' "$request" | DIRECTORY=@DIRECTORY@/machines @PROGRAM@; }
operation=$(field operation) namespace=$(field namespace)
. @DIRECTORY@/trouble
answer
"#;

/// The directory with the machines and the script.
pub(crate) struct ExecHands {
    directory: tempfile::TempDir,
    program: Program,
}

impl ExecHands {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let example = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/providers/exec/directory.sh");
        let path = directory.path().display().to_string();
        let text = SCRIPT.replace("@DIRECTORY@", &path).replace("@PROGRAM@", example);
        let program = script("directory", &directory, &text);
        let hands = Self { directory, program };
        hands.end();
        hands
    }

    /// Lets the script do this, in shell, before it answers.
    fn before_it_answers(&self, shell: &str) {
        fs::write(self.directory.path().join("trouble"), shell).unwrap();
    }

    /// Lets the script do this, in shell, instead of one operation.
    fn instead_of(&self, operation: &str, shell: &str) {
        self.before_it_answers(&format!("[ \"$operation\" != {operation} ] || {{ {shell}; exit; }}\n"));
    }

    /// Where the machines of `default/web` are.
    fn of_pool(&self) -> std::path::PathBuf {
        self.directory.path().join("machines/default/web")
    }
}

impl Hands for ExecHands {
    fn maker(&self) -> &'static str {
        "exec"
    }

    fn provisioner(&self) -> Provisioner {
        Provisioner::with(cluster(), vec![Box::new(Exec::new(self.program.clone(), cluster()))])
    }

    fn spec(&self) -> ProviderSpec {
        let exec = ExecProvider { name: "directory".to_owned(), ..ExecProvider::default() };
        ProviderSpec { exec: Some(exec), ..ProviderSpec::default() }
    }

    fn make(&self, trouble: Trouble) {
        let first = format!(r#"{{"name": "{}0", "state": "Running"}}"#, prefix());
        let ghost = format!(r#"{{"name": "{GHOST}", "state": "Running"}}"#);
        match trouble {
            // It is killed when the work is done.
            Trouble::LostCreation => self.instead_of("create", "answer >/dev/null; kill -9 $$"),
            Trouble::LostDeletion => self.instead_of("delete", "answer >/dev/null; kill -9 $$"),
            Trouble::Silence => {
                self.before_it_answers("[ \"$namespace\" != default ] || exec sleep 600\n");
            }
            Trouble::FailedList => self.instead_of("list", "exit 3"),
            Trouble::CutList => self.instead_of("list", "answer | head -c 60"),
            Trouble::PartialList => {
                self.instead_of("list", &format!("echo '{{\"machines\": [{first}]}}'"));
            }
            Trouble::EmptyList => self.instead_of("list", "echo '{\"machines\": []}'"),
            Trouble::GhostList => {
                let list = format!("{{\"complete\": true, \"machines\": [{first}, {ghost}]}}");
                self.instead_of("list", &format!("echo '{list}'"));
            }
            Trouble::NoRoom => {
                let error = r#"{"error": {"reason": "QuotaExceeded", "message": "no rack is free"}}"#;
                self.instead_of("create", &format!("echo '{error}'"));
            }
            Trouble::Stranger => fs::write(self.of_pool().join(STRANGER), "\nthere\n").unwrap(),
        }
    }

    fn end(&self) {
        self.before_it_answers("");
    }

    fn machines(&self) -> Vec<String> {
        let Ok(files) = fs::read_dir(self.of_pool()) else { return Vec::new() };
        let mut names: Vec<_> = files.map(|file| file.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn no_room(&self) -> &'static str {
        "no rack is free"
    }
}
