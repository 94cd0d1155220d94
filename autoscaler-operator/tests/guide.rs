//! The transcripts of `docs/guides/explain.md` are the output of this version. `cargo xtask guide` regenerates them: it
//! runs this test with `TANDEM_WRITE_GUIDES=1`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

const GUIDE: &str = "docs/guides/explain.md";
const PROGRAM: &str = "$ autoscaler-operator ";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// The program's output: messages on standard error come first.
fn printed(arguments: &str) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_autoscaler-operator"))
        .args(arguments.split_whitespace())
        .current_dir(root())
        .output()
        .unwrap();
    let text = [output.stderr, output.stdout].concat();
    String::from_utf8(text).unwrap()
}

/// The guide with the output of every command below it, and the number of commands.
fn written(guide: &str) -> (String, usize) {
    let (mut text, mut commands) = (String::new(), 0);
    // Whether the line is old output of a command.
    let mut stale = false;
    for line in guide.lines() {
        let command = line.strip_prefix(PROGRAM);
        stale &= command.is_none() && line != "```";
        if stale {
            continue;
        }
        text.push_str(line);
        text.push('\n');
        if let Some(arguments) = command {
            commands += 1;
            stale = true;
            text.push_str(&printed(arguments));
        }
    }
    (text, commands)
}

#[test]
fn the_transcripts_of_the_guide_are_what_is_printed() {
    let file = root().join(GUIDE);
    let present = std::fs::read_to_string(&file).unwrap();
    let (text, commands) = written(&present);
    assert!(commands >= 8, "{GUIDE} has lost its transcripts");
    if std::env::var_os("TANDEM_WRITE_GUIDES").is_some() {
        std::fs::write(&file, text).unwrap();
    } else {
        assert!(present == text, "{GUIDE} is not what this version prints; run `cargo xtask guide`\n{text}");
    }
}
